"""nodeorder: rank feasible nodes by kube-scheduler's scores (docs/semantics/plugins.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.framework.pod_index_updates import FollowsPods
from vcd.scheduling.search.parts import Score
from vcd.scheduling.search.scores.affinity_score import InterPodAffinityScore
from vcd.scheduling.search.scores.image_locality import ImageLocality
from vcd.scheduling.search.scores.node_scores import NodeAffinityScore, TaintTolerationScore
from vcd.scheduling.search.scores.resource_scores import BalancedResource, LeastRequested, MostRequested
from vcd.scheduling.search.scores.spread_score import PodTopologySpreadScore
from vcd.scheduling.session.session import Session


def _weight(name: str, default: int, doc: str) -> Argument:
    return Argument(f"{name}.weight", "int", default, f"Weight of {doc}; 0 turns it off.")


class NodeOrderPlugin(FollowsPods):
    """Rank feasible nodes by the weighted sum of kube-scheduler's scores, each from 0 to 100.

    - leastrequested: mean of (allocatable - requested) x 100 / allocatable over cpu and memory
    - mostrequested: mean of requested x 100 / allocatable
    - balancedresource: 50 + (50 + s(with the pod) - s(without)) / 2 with s = (1 - standard deviation of the used
      fractions of cpu, memory and GPUs) x 100
    - nodeaffinity: weights of the matching preferred terms, in percent of the highest
    - podaffinity, podtopologyspread: by the positions of other pods
    - tainttoleration: 100 less the untolerated PreferNoSchedule taints, in percent of the most
    - imagelocality: by the bytes of the pod's images that the node has

    All divisions round down. A pod without topology spread constraints gets kube-scheduler's default constraints: host
    names with skew 3, zones with skew 5. They apply to pods that a Service selects or that a ReplicationController,
    ReplicaSet or StatefulSet owns. Source: Volcano ``plugins/nodeorder``, kube-scheduler 1.36.
    """

    name = "nodeorder"
    keys = ()
    kinds = ("Namespace", "Service", "ReplicationController", "ReplicaSet", "StatefulSet")
    arguments = (
        _weight("leastrequested", 1, "emptier nodes"),
        _weight("mostrequested", 0, "fuller nodes"),
        _weight("balancedresource", 1, "evenly used nodes"),
        _weight("nodeaffinity", 2, "preferred node affinity"),
        _weight("podaffinity", 2, "preferred pod affinity and anti-affinity"),
        _weight("tainttoleration", 3, "nodes without PreferNoSchedule taints"),
        _weight("imagelocality", 1, "nodes that have the pod's images"),
        _weight("podtopologyspread", 2, "soft topology spread constraints"),
    )

    def open(self, session: Session) -> None:
        """Track the positions of pods if a score with a weight needs them."""
        self._session = session
        if self._weight("podaffinity") or self._weight("podtopologyspread"):
            self.follow_pods(session)

    def _weight(self, name: str) -> int:
        weight: int = self.values[f"{name}.weight"]
        return weight

    def node_order(self) -> Iterable[Score]:
        """Return the scores with a weight other than 0 that can distinguish nodes, in this order."""
        for name, make in _SCORES.items():
            weight = self._weight(name)
            if not weight:
                continue
            score = make(self._session, weight)
            if not isinstance(score, TaintTolerationScore | ImageLocality) or score.has_effect:
                yield score


_SCORES: Mapping[str, Callable[[Session, float], Score]] = {
    "leastrequested": LeastRequested,
    "mostrequested": MostRequested,
    "balancedresource": BalancedResource,
    "nodeaffinity": NodeAffinityScore,
    "podaffinity": InterPodAffinityScore,
    "tainttoleration": TaintTolerationScore,
    "imagelocality": ImageLocality,
    "podtopologyspread": PodTopologySpreadScore,
}
