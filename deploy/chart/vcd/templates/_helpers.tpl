{{/* RELEASE-scheduler if the release's name contains vcd, so that the release vcd has the names of deploy/base. */}}
{{- define "vcd.release" -}}
{{- if contains "vcd" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-vcd{{ end }}
{{- end }}

{{- define "vcd.fullname" -}}
{{- .Values.fullnameOverride | default (printf "%s-scheduler" (include "vcd.release" .)) | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "vcd.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "vcd.fullname" .) }}
{{- else }}
{{- required "serviceAccount.name: must be given, since serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "vcd.logReader" -}}
{{- printf "%s-reader" (include "vcd.release" .) }}
{{- end }}

{{- define "vcd.pageReader" -}}
{{- .Values.page.readerClusterRole.name | default (printf "%s-page-reader" (include "vcd.release" .)) }}
{{- end }}

{{- define "vcd.metricsReader" -}}
{{- .Values.metrics.readerClusterRole.name | default (printf "%s-metrics-reader" (include "vcd.release" .)) }}
{{- end }}

{{- define "vcd.configMap" -}}
{{- .Values.scheduler.existingConfigMap | default (printf "%s-configmap" (include "vcd.fullname" .)) }}
{{- end }}

{{/* The namespace of the Lease's Role; the flag uses a variable for the pod's own namespace, as in deploy/base. */}}
{{- define "vcd.leaseNamespace" -}}
{{- .Values.leaderElection.namespace | default .Release.Namespace }}
{{- end }}

{{- define "vcd.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- define "vcd.selector" -}}
app.kubernetes.io/name: vcd
app.kubernetes.io/component: scheduler
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "vcd.labels" -}}
{{ include "vcd.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{/* The subject of every binding. */}}
{{- define "vcd.subjects" -}}
subjects:
- kind: ServiceAccount
  name: {{ include "vcd.serviceAccount" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
{{- end }}

{{- define "vcd.persistent" -}}
{{- if eq .Values.eventLog.storage.type "persistent" }}yes{{ end }}
{{- end }}

{{- define "vcd.claim" -}}
accessModes: {{ toJson .Values.eventLog.storage.accessModes }}
{{- with .Values.eventLog.storage.storageClassName }}
storageClassName: {{ . | quote }}
{{- end }}
resources:
  requests:
    storage: {{ .Values.eventLog.storage.size }}
{{- end }}

{{/* The bytes of a quantity; empty for an unknown unit. */}}
{{- define "vcd.bytes" -}}
{{- $number := regexFind "^[0-9]+([.][0-9]+)?" . }}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 }}
{{- $units = merge $units (dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624) }}
{{- with get $units (trimPrefix $number .) }}{{ mulf $number . }}{{ end }}
{{- end }}

{{/* The scheduler names of vcd, as a JSON list. */}}
{{- define "vcd.schedulerNames" -}}
{{- prepend (.Values.scheduler.extraNames | default list) .Values.scheduler.name | toJson }}
{{- end }}

{{/* The flags that the chart sets or depends on, each with the value to use instead; empty for flags of the probes. */}}
{{- define "vcd.ownFlags" -}}
archive: eventLog.archive.to
archive-every: eventLog.archive.every
archive-keep: eventLog.archive.keep
check-volcano-jobs: scheduler.checkVolcanoJobs
controllers: scheduler.controllers
default-queue: scheduler.defaultQueue
enable-healthz: ""
enable-metrics: metrics.enabled
event-log: eventLog.storage
event-log-volume-size: eventLog.storage.size
healthz-address: ""
kube-api-burst: scheduler.kubeApiBurst
kube-api-qps: scheduler.kubeApiQPS
leader-elect: leaderElection.enabled
leader-elect-resource-name: leaderElection.name
leader-elect-resource-namespace: leaderElection.namespace
listen-address: metrics.service.port
lock-object-namespace: leaderElection.namespace
log-retention-age: eventLog.retention.age
log-retention-size: eventLog.retention.size
metrics-require-token: metrics.requireToken
metrics-secure: metrics.secure
page-audience: page.audiences
page-host: page.hosts
page-url: page.url
replicas-address: eventLog.shared
replicas-advertise: eventLog.shared
replicas-token-file: eventLog.shared
schedule-period: scheduler.schedulePeriod
scheduler-conf: scheduler.configuration
scheduler-configmap: scheduler.existingConfigMap
scheduler-name: scheduler.name or scheduler.extraNames
shadow: scheduler.shadow
tls-cert-file: tls.secretName
tls-private-key-file: tls.secretName
v: scheduler.verbosity
view-address: page.enabled
{{- end }}

{{/* Refuses a flag of the chart. The argument is a list: where it is given, how it is written there, its name. */}}
{{- define "vcd.refuseOwn" -}}
{{- $own := fromYaml (include "vcd.ownFlags" .) }}
{{- if hasKey $own (last .) }}
  {{- $value := get $own (last .) }}
  {{- $instead := ternary (printf "set %s instead" $value) "the probes rely on it; leave it out" (not (empty $value)) }}
  {{- fail (printf "%s: %s: %s" (first .) (index . 1) $instead) }}
{{- end }}
{{- end }}

{{/* Refuses values that exclude each other, which the schema cannot check. */}}
{{- define "vcd.check" -}}
{{- range .Values.scheduler.extraArgs }}
  {{- $name := regexFind "[A-Za-z][A-Za-z0-9_-]*" . | replace "_" "-" }}
  {{- include "vcd.refuseOwn" (list "scheduler.extraArgs" . (regexReplaceAll "^v-?[0-9]*$" $name "v")) }}
{{- end }}
{{- range .Values.extraEnv }}
  {{- if hasPrefix "VCD_" .name }}
    {{- include "vcd.refuseOwn" (list "extraEnv" .name (trimPrefix "VCD_" .name | lower | replace "_" "-")) }}
  {{- end }}
{{- end }}
{{- $size := include "vcd.bytes" .Values.eventLog.storage.size }}
{{- $kept := .Values.eventLog.retention.size | default "10Gi" }}
{{- if and $size (lt (float64 $size) (mulf 2 (include "vcd.bytes" $kept))) }}
  {{- fail (printf "eventLog.storage.size: %s is less than twice eventLog.retention.size (%s), and a log may be kept whole beside the new one; enlarge the one or lower the other" .Values.eventLog.storage.size $kept) }}
{{- end }}
{{- if and .Values.podDisruptionBudget.enabled (gt (int .Values.replicas) 1) }}
  {{- $stay := .Values.podDisruptionBudget.minAvailable }}
  {{- $least := int $stay }}
  {{- if kindIs "string" $stay }}
    {{- $least = div (add 99 (mul (trimSuffix "%" $stay | int) .Values.replicas)) 100 }}
  {{- end }}
  {{- if ge (int $least) (int .Values.replicas) }}
    {{- fail (printf "podDisruptionBudget.minAvailable: with %v of %d replicas no node that one is on could be drained; lower it" $stay (int .Values.replicas)) }}
  {{- end }}
{{- end }}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" (include "vcd.fullname" .)) }}
  {{- fail (printf "release %s: no Service can be named %s; set fullnameOverride" .Release.Name (include "vcd.fullname" .)) }}
{{- end }}
{{- if and .Values.validation.enabled (semverCompare "<1.30-0" .Capabilities.KubeVersion.Version) }}
  {{- fail "validation.enabled: needs Kubernetes 1.30 or later; leave it off" }}
{{- end }}
{{- if .Values.scheduler.shadow }}
  {{- if .Values.scheduler.controllers }}
    {{- fail "scheduler.shadow: a shadow writes nothing; leave scheduler.controllers out" }}
  {{- end }}
  {{- if gt (int .Values.replicas) 1 }}
    {{- fail "scheduler.shadow: a second replica would be another shadow, with a log of its own; set replicas to 1" }}
  {{- end }}
  {{- if .Values.eventLog.archive.to }}
    {{- fail "scheduler.shadow: a shadow's log is not shipped; leave eventLog.archive.to out" }}
  {{- end }}
{{- end }}
{{- if and .Values.metrics.secure .Values.metrics.enabled (not .Values.tls.secretName) }}
  {{- fail "metrics.secure: needs a certificate; name its Secret in tls.secretName" }}
{{- end }}
{{- if and .Values.page.service.enabled (not .Values.page.enabled) }}
  {{- fail "page.service: there is nothing behind it; set page.enabled, too" }}
{{- end }}
{{- if not .Values.leaderElection.enabled }}
  {{- if gt (int .Values.replicas) 1 }}
    {{- fail "leaderElection.enabled: without it nothing keeps replicas apart; set replicas to 1, or enable it" }}
  {{- end }}
  {{- if and (not (include "vcd.persistent" .)) (ne .Values.strategy.type "Recreate") }}
    {{- fail "leaderElection.enabled: without it two pods may never run; set strategy.type to Recreate, or enable it" }}
  {{- end }}
{{- end }}
{{- if not .Values.scheduler.existingConfigMap }}
  {{- with (fromYaml .Values.scheduler.configuration).Error }}
    {{- fail (printf "scheduler.configuration: %s" .) }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Whether the replicas share one log: not for a shadow, and not without leader election. */}}
{{- define "vcd.shared" -}}
{{- if and .Values.eventLog.shared .Values.leaderElection.enabled (not .Values.scheduler.shadow) }}yes{{ end }}
{{- end }}
