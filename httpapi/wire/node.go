package wire

// Ready is the body of GET /readyz, whatever its status.
type Ready struct {
	Ready       bool                    `json:"ready"`
	WriteReady  bool                    `json:"write_ready"`
	Degraded    bool                    `json:"degraded"`
	Missing     []string                `json:"missing" doc:"keys that do not hold: registry.commit_ready"`
	RetryAfter  int                     `json:"retry_after"`
	Incarnation string                  `json:"incarnation"`
	Version     uint64                  `json:"version,omitzero" doc:"version of the registry's HEAD"`
	HeadB3      string                  `json:"head_b3,omitzero" format:"b3"`
	Services    map[string]ServiceReady `json:"services"`
}

// ServiceReady is one service's part of Ready.
type ServiceReady struct {
	Ready      bool     `json:"ready"`
	WriteReady bool     `json:"write_ready"`
	Missing    []string `json:"missing,omitempty"`
}

// VersionInfo is the body of GET /version.
type VersionInfo struct {
	Version      string            `json:"version"`
	Commit       string            `json:"commit,omitzero"`
	Go           string            `json:"go"`
	Schema       int               `json:"schema" doc:"schema of the database file"`
	NodeID       string            `json:"node_id"`
	Incarnation  string            `json:"incarnation"`
	Services     map[string]string `json:"services" doc:"service to mode: on, off"`
	Schemas      map[string]string `json:"schemas" doc:"service to version of its wire schema"`
	Formats      map[string]uint64 `json:"formats,omitempty" doc:"service to format of its tables in the database file, of those that number it"`
	Deprecations []string          `json:"deprecations"`
}

// Status is the body of GET /admin/v1/status.
type Status struct {
	NodeID        string                  `json:"node_id"`
	Incarnation   string                  `json:"incarnation"`
	Version       string                  `json:"version"`
	Phase         string                  `json:"phase" enum:"booting|recovering|running|degraded|draining|aborting|stopping|stopped|poisoned"`
	URL           string                  `json:"url"`
	Socket        string                  `json:"socket,omitzero"`
	UptimeSeconds int64                   `json:"uptime_seconds"`
	Ready         bool                    `json:"ready"`
	WriteReady    bool                    `json:"write_ready"`
	ReadReady     bool                    `json:"read_ready"`
	Degraded      bool                    `json:"degraded"`
	Missing       []string                `json:"missing"`
	Causes        map[string]string       `json:"causes,omitempty" doc:"key to what was seen"`
	Services      map[string]ServiceReady `json:"services"`
	Head          *Head                   `json:"head,omitzero"`
	Store         StoreStatus             `json:"store"`
}

// StoreStatus is the store's part of Status.
type StoreStatus struct {
	File         string `json:"file"`
	Bytes        int64  `json:"bytes"`
	MaxBytes     int64  `json:"max_bytes"`
	Seq          uint64 `json:"seq" doc:"commands committed since the file was made"`
	Restored     bool   `json:"restored,omitzero"`
	RestoredFrom string `json:"restored_from,omitzero"`
	Health       string `json:"health,omitzero" doc:"empty: sound"`
}

// DrainRequest is the body of POST /admin/v1/drain.
type DrainRequest struct {
	Reason string `json:"reason,omitzero"`
}
