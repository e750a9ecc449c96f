{{/* RELEASE-scheduler for a release that is named after vcd, so that the release vcd makes what deploy/base names. */}}
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

{{/* Where the Lease's Role is; the flag takes the pod's own namespace instead of its name, as in deploy/base. */}}
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

{{/* What no schema can tell: values that do not go together. */}}
{{- define "vcd.check" -}}
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

{{/* Whether the replicas have one log: a shadow follows nobody's, and without an election nobody leads whom to follow. */}}
{{- define "vcd.shared" -}}
{{- if and .Values.eventLog.shared .Values.leaderElection.enabled (not .Values.scheduler.shadow) }}yes{{ end }}
{{- end }}
