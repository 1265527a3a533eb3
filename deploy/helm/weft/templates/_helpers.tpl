{{- define "weft.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "weft.selector" -}}
app.kubernetes.io/name: weft
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "weft.labels" -}}
{{ include "weft.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}
