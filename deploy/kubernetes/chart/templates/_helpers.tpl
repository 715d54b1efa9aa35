{{- define "waggle.selector" -}}
app.kubernetes.io/name: waggle
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "waggle.labels" -}}
{{ include "waggle.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "waggle.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- /* The variables that every process has: where the settings and the database are. */ -}}
{{- define "waggle.database" -}}
- name: WAGGLE_CONFIG
  value: /etc/waggle/waggle.toml
- name: WAGGLE_DATABASE__URL
  valueFrom: { secretKeyRef: {{ toJson .Values.secrets.database }} }
{{- end }}

{{- define "waggle.container-security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{- define "waggle.pod-security" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: { type: RuntimeDefault }
{{- end }}
