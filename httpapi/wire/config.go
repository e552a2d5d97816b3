package wire

// ConfigShow is the body of GET /admin/v1/config: every key in force, sorted.
type ConfigShow struct {
	Version uint64      `json:"version" doc:"1 at start, one more with every reload"`
	Keys    []ConfigKey `json:"keys"`
}

// ConfigKey is one key of ConfigShow. Values are spelled as TOML; a secret
// shows as "***".
type ConfigKey struct {
	Key     string `json:"key" doc:"dotted: registry.limits.rps"`
	Value   string `json:"value"`
	Default string `json:"default"`
	Source  string `json:"source" enum:"default|file|env|flag"`
	Where   string `json:"where,omitzero" doc:"file:line:column, the variable or the flag"`
	Reload  string `json:"reload,omitzero" enum:"r|b|x" doc:"r: in place, b: rebinds a socket, x: needs a restart"`
}

// ConfigChange is one key that a reload changed.
type ConfigChange struct {
	Key    string `json:"key"`
	From   string `json:"from"`
	To     string `json:"to"`
	Reload string `json:"reload,omitzero" enum:"r|b|x"`
}

// Reloaded answers POST /admin/v1/config/reload.
type Reloaded struct {
	Version uint64         `json:"version" doc:"version in force now"`
	Source  string         `json:"source" doc:"the file read, empty if there is none"`
	Changed []ConfigChange `json:"changed" doc:"keys changed; the version stays if there are none"`
}
