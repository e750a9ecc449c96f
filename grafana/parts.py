"""Selectors, variables and panels of the dashboards, on the builders that Grafana generates from its schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from grafana_foundation_sdk.builders import bargauge, heatmap, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders import common as looks
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models import prometheus as promql

SCHEDULER = {"cluster": "Cluster", "namespace": "Namespace", "job": "Scheduler"}
"""The labels that identify a scheduler in a Prometheus, with their titles as single-value variables. If no scheduler
has a label, its variable is empty and its matcher matches."""
REPLICA = "instance"
CHOSEN = ", ".join([*(f'{label}="${label}"' for label in SCHEDULER), f'{REPLICA}=~"${REPLICA}"'])
"""The first matchers of every selector."""
RUNBOOKS = "${runbooks}"
"""The address of the runbooks: a variable with the value of _RUNBOOKS_QUERY."""
_UNSET = "https://address-of-runbooks-not-set.invalid/grafana/rules/links.yaml"
_RUNBOOKS_QUERY = (
    'query_result(vcd:runbooks:info{url!=""}'
    f' or on () label_replace(vcd_page_info{{{CHOSEN}}}, "url", "${{1}}/runbooks.html", "url", "(.*)")'
    f' or on () label_replace(vector(1), "url", "{_UNSET}", "", ""))'
)
"""The address in grafana/rules/links.yaml, else the page of the chosen replicas, else an address naming that file."""
PAGE_AT = "${page}/?at=${__to}"
"""The page as of the end of the dashboard's time range."""
SOURCE = dashboard.DataSourceRef("prometheus", "${datasource}")
GREEN, ORANGE, RED, BLUE = "green", "orange", "red", "blue"
TAG = "vcd"
PAGE_OF_JOB = f"{PAGE_AT}&job=${{__data.fields.namespace}}/${{__data.fields.job}}"
"""The same for a job; the table must have the columns namespace and job."""
PAGE_OF_SESSION = "${page}/?session=${__value.raw}"
"""The page of the session whose number is the panel's value."""
HIDDEN = dashboard.VariableHide.HIDE_VARIABLE

Panel = TypeVar(
    "Panel", timeseries.Panel, stat.Panel, bargauge.Panel, table.Panel, heatmap.Panel, statetimeline.Panel
)  # fmt: skip
AnyPanel = timeseries.Panel | stat.Panel | bargauge.Panel | table.Panel | heatmap.Panel | statetimeline.Panel


# --- expressions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Query:
    """An expression, and the legend of its series, in which ``{{label}}`` is replaced by a label's value."""

    expr: str
    legend: str = ""


def own(name: str, *matchers: str) -> str:
    """Return a selector for the series of the chosen replicas of the chosen scheduler."""
    return f"{name}{{{', '.join((CHOSEN, *matchers))}}}"


def of_queue(name: str, *matchers: str, label: str = "queue_name") -> str:
    """Return a selector for the series of the chosen queues."""
    return own(name, f'{label}=~"$queue"', *matchers)


def per_second(name: str, *by: str, of: str = "") -> str:
    """Return the rate of a counter, summed over all labels but ``by``."""
    return f"sum by ({', '.join(by)}) (rate({of or own(name)}[$__rate_interval]))"


def quantile(part: float, name: str, *by: str, of: str = "") -> str:
    """Return a quantile of a histogram; ``part`` is from 0 to 1."""
    labels = ", ".join((*by, "le"))
    return f"histogram_quantile({part:g}, sum by ({labels}) (rate({of or own(f'{name}_bucket')}[$__rate_interval])))"


def percentiles(name: str, legend: str = "", *by: str, of: str = "") -> list[Query]:
    """Return the median, the 95th and the 99th percentile of a histogram."""
    parts = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
    return [Query(quantile(part, name, *by, of=of), f"{legend} {word}".strip()) for word, part in parts]


# --- panels -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Text:
    """A panel's title, its description (``says``), its unit in Grafana's names, the anchor of its runbook, and the
    link of its values (``leads``)."""

    title: str
    says: str
    unit: str = "short"
    runbook: str = ""
    leads: str = ""


def _common(panel: Panel, text: Text, queries: Sequence[Query], width: int, height: int) -> Panel:
    panel.title(text.title).description(text.says).unit(text.unit).span(width).height(height).datasource(SOURCE)
    if text.runbook:
        link = build.DashboardLink("Runbook").url(f"{RUNBOOKS}#{text.runbook}").type(dashboard.DashboardLinkType.LINK)
        panel.links([link.target_blank(True)])
    if text.leads:
        link = build.DashboardLink("Page").url(text.leads).type(dashboard.DashboardLinkType.LINK)
        panel.data_links([link.target_blank(True)])
    for number, query in enumerate(queries):
        target = prometheus.Dataquery().expr(query.expr).ref_id(chr(ord("A") + number)).datasource(SOURCE)
        target.legend_format(query.legend or "__auto")
        if isinstance(panel, (stat.Panel, bargauge.Panel, table.Panel)):
            target.instant()
        else:
            target.range()
        if isinstance(panel, table.Panel):
            target.format(promql.PromQueryFormat.TABLE)
        if isinstance(panel, heatmap.Panel):
            target.format(promql.PromQueryFormat.HEATMAP)
        panel.with_target(target)
    return panel


def lines(
    text: Text, *queries: Query, width: int = 8, height: int = 8, stacked: bool = False, repeat: str = ""
) -> timeseries.Panel:
    """Return a panel with values over time; ``repeat`` names a variable, each value of which gets a panel."""
    panel = _common(timeseries.Panel(), text, queries, width, height).min(0).show_points(common.VisibilityMode.NEVER)
    panel.legend(
        looks.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
    )
    panel.tooltip(looks.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING))
    if stacked:
        panel.stacking(looks.StackingConfig().mode(common.StackingMode.NORMAL)).fill_opacity(30)
    if repeat:
        panel.repeat(repeat).repeat_direction("h").max_per_row(24 // width)
    return panel


def number(text: Text, query: Query, steps: Iterable[tuple[float, str]] = (), width: int = 4) -> stat.Panel:
    """Return a panel with one current value, in the colour of the highest of ``steps`` that it reaches, else green."""
    panel = _common(stat.Panel(), text, [query], width, 4).color_mode(common.BigValueColorMode.VALUE)
    return panel.thresholds(_colours(steps)).graph_mode(common.BigValueGraphMode.NONE).no_value("none")


def bars(
    text: Text, *queries: Query, steps: Iterable[tuple[float, str]] = (), width: int = 8, height: int = 8
) -> bargauge.Panel:
    """Return a panel with the current values as bars."""
    panel = _common(bargauge.Panel(), text, queries, width, height).min(0).thresholds(_colours(steps))
    return panel.orientation(common.VizOrientation.HORIZONTAL).display_mode(common.BarGaugeDisplayMode.BASIC)


def rows(text: Text, columns: dict[str, Query], names: dict[str, str], width: int = 12, height: int = 9) -> table.Panel:
    """Return a table with a column for each label in ``names`` (label: title), and one for each query (title: query).

    A query with an empty title determines only which rows exist.
    """
    panel = _common(table.Panel(), text, list(columns.values()), width, height)
    values = [f"Value #{chr(ord('A') + place)}" for place in range(len(columns))] if len(columns) > 1 else ["Value"]
    order = {label: place for place, label in enumerate((*names, *values))}
    renamed = {**names, **dict(zip(values, columns, strict=True))}
    panel.with_transformation(dashboard.DataTransformerConfig("merge", options={}))
    hidden = {"Time": True, **{value: True for value in values if not renamed[value]}}
    shown = {"excludeByName": hidden, "indexByName": order, "renameByName": renamed}
    return panel.with_transformation(dashboard.DataTransformerConfig("organize", options=shown)).filterable(True)


def heat(text: Text, buckets: str, width: int = 12, height: int = 8) -> heatmap.Panel:
    """Return a heat map of a histogram's observations over time."""
    panel = _common(heatmap.Panel(), text, [Query(buckets, "{{le}}")], width, height)
    panel.scale_distribution(looks.ScaleDistributionConfig().type(common.ScaleDistribution.LINEAR))
    return panel.y_axis(heatmap.YAxisConfig().unit(text.unit))


def states(text: Text, *queries: Query, words: dict[str, tuple[str, str]], width: int = 12) -> statetimeline.Panel:
    """Return a panel with states over time; ``words`` maps values to their word and colour."""
    panel = _common(statetimeline.Panel(), text, queries, width, 6)
    mapped = {value: dashboard.ValueMappingResult(word, colour) for value, (word, colour) in words.items()}
    return (
        panel.mappings([dashboard.ValueMap(mapped)]).merge_values(True).row_height(0.8).line_width(0).fill_opacity(70)
    )


def _colours(steps: Iterable[tuple[float, str]]) -> build.ThresholdsConfig:
    all_steps = [dashboard.Threshold(None, GREEN), *(dashboard.Threshold(value, colour) for value, colour in steps)]
    return build.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(all_steps)


# --- dashboards -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Board:
    """A dashboard. ``choices`` are its variables in addition to data source, scheduler and replica: name, series,
    label, title."""

    uid: str
    title: str
    says: str
    parts: Sequence[tuple[str, Sequence[AnyPanel]]]
    choices: Sequence[tuple[str, str, str, str]] = ()

    def built(self) -> dashboard.Dashboard:
        """Return the dashboard as a model of Grafana."""
        board = build.Dashboard(self.title).uid(self.uid).description(self.says).tags([TAG]).readonly()
        board.time("now-6h", "now").refresh("30s").timezone("utc").tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        board.with_variable(build.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        for variable in _schedulers():
            board.with_variable(variable)
        for name, series, label, title in self.choices:
            board.with_variable(_several(name, own(series), label, title))
        others = build.DashboardLink("vcd").type(dashboard.DashboardLinkType.DASHBOARDS).tags([TAG])
        board.link(others.as_dropdown(True).include_vars(True).keep_time(True))
        board.with_variable(_hidden("page", f"label_values({own('vcd_page_info')}, url)"))
        board.with_variable(_hidden("runbooks", _RUNBOOKS_QUERY).regex('/url="([^"]+)"/'))
        shown = build.DashboardLink("vcd's page").type(dashboard.DashboardLinkType.LINK).url(PAGE_AT)
        board.link(shown.target_blank(True))
        made = 0
        for title, panels in self.parts:
            made += 1
            board.with_row(build.Row(title).id(made))
            for panel in panels:
                made += 1
                board.with_panel(panel.id(made))
        return board.build()


def _hidden(name: str, query: str) -> build.QueryVariable:
    """Return a hidden variable with the address for links; it is updated when other replicas are chosen."""
    variable = build.QueryVariable(name).datasource(SOURCE).query({"query": query, "refId": name})
    return variable.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED).hide(HIDDEN)


def _schedulers() -> Iterator[build.QueryVariable]:
    """Yield the variables that choose one scheduler (the first one by default) and any of its replicas."""
    series = "vcd_build_info"
    chosen: list[str] = []
    for label, title in SCHEDULER.items():
        yield _choice(label, f"{series}{{{', '.join(chosen)}}}", label, title)
        chosen.append(f'{label}="${label}"')
    yield _several(REPLICA, f"{series}{{{', '.join(chosen)}}}", REPLICA, "Replica")


def _choice(name: str, series: str, label: str, title: str) -> build.QueryVariable:
    """Return a variable with one value of a label."""
    values = {"query": f"label_values({series}, {label})", "refId": "values"}
    variable = build.QueryVariable(name).label(title).datasource(SOURCE).query(values)
    variable.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
    return variable.sort(dashboard.VariableSort.ALPHABETICAL_ASC)


def _several(name: str, series: str, label: str, title: str) -> build.QueryVariable:
    """Return a variable with any number of values of a label, by default all."""
    everything = dashboard.VariableOption(selected=True, text=["All"], value=["$__all"])
    variable = _choice(name, series, label, title).multi(True).include_all(True).all_value(".*")
    return variable.current(everything)
