"""Which parts of manifests are refused or not understood: templates of sentences by code."""

from __future__ import annotations

from typing import Final

from vcd.text.templates import Templates

MANIFESTS: Final = Templates(
    {
        "unknown field": "{path} is not a field{meant}",
        "unknown kind": "{kind} of API group {group} is not understood: {names}; {remedy}",
        "unknown kind unversioned": "{kind} of no apiVersion is not understood: {names}; {remedy}",
        "looks like pods": "{path} looks like a pod template; give the pods that it makes",
        "no template": "it has no pod template; if it makes pods, give these",
        "other scheduler": "pods of scheduler {scheduler} stay pending, as no such scheduler runs: {names}",
        "depends on": "dependsOn of job {job} is ignored: all its pods are created at once",
        "volumes": "volumes of job {job} are ignored",
        # LimitRanges and ResourceQuotas
        "bounds": "bounds of LimitRanges of namespace {namespace} on each {kind} are not applied",
        "quota short": (
            "ResourceQuota {quota} has too little {names} for all pods of this plan: the API server refuses those that"
            " come last"
        ),
        "quota unstated": "ResourceQuota {quota}: it must specify {names}",
        "quota exceeded": "ResourceQuota {quota} is exceeded: {limits}",
    }
)
