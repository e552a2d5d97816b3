package wire

import "time"

// Ready is the body of GET /readyz, whatever its status.
type Ready struct {
	Ready       bool                    `json:"ready"`
	WriteReady  bool                    `json:"write_ready"`
	Degraded    bool                    `json:"degraded"`
	Missing     []string                `json:"missing"` // keys that do not hold: "registry.commit_ready"
	RetryAfter  int                     `json:"retry_after"`
	Incarnation string                  `json:"incarnation"`
	Version     uint64                  `json:"version,omitzero"` // of the registry's HEAD
	HeadB3      string                  `json:"head_b3,omitzero"`
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
	Schema       int               `json:"schema"` // of the database file
	NodeID       string            `json:"node_id"`
	Incarnation  string            `json:"incarnation"`
	Services     map[string]string `json:"services"` // service to mode: "on", "off"
	Schemas      map[string]string `json:"schemas"`  // service to wire schema: registry 1.0.0
	Deprecations []string          `json:"deprecations"`
}

// Status is the body of GET /admin/v1/status.
type Status struct {
	NodeID        string                  `json:"node_id"`
	Incarnation   string                  `json:"incarnation"`
	Version       string                  `json:"version"`
	Phase         string                  `json:"phase"` // of the lifecycle: Running, Degraded, Draining …
	URL           string                  `json:"url"`
	Socket        string                  `json:"socket,omitzero"`
	UptimeSeconds int64                   `json:"uptime_seconds"`
	Ready         bool                    `json:"ready"`
	WriteReady    bool                    `json:"write_ready"`
	ReadReady     bool                    `json:"read_ready"`
	Degraded      bool                    `json:"degraded"`
	Missing       []string                `json:"missing"`
	Causes        map[string]string       `json:"causes,omitempty"` // key to what was seen
	Services      map[string]ServiceReady `json:"services"`
	Head          *Head                   `json:"head,omitzero"`
	Store         StoreStatus             `json:"store"`
}

// StoreStatus is the store's part of Status.
type StoreStatus struct {
	File         string `json:"file"`
	Bytes        int64  `json:"bytes"`
	MaxBytes     int64  `json:"max_bytes"`
	Seq          uint64 `json:"seq"` // commands committed since the file was made
	Restored     bool   `json:"restored,omitzero"`
	RestoredFrom string `json:"restored_from,omitzero"`
	Health       string `json:"health,omitzero"` // empty: sound
}

// DrainRequest is the body of POST /admin/v1/drain.
type DrainRequest struct {
	Reason string `json:"reason,omitzero"`
}

// DBInfo is the body of GET /admin/v1/db/info.
type DBInfo struct {
	File         string            `json:"file"`
	NodeID       string            `json:"node_id"`
	Incarnation  string            `json:"incarnation"`
	Schema       int               `json:"schema"`
	Seq          uint64            `json:"seq"`
	Clean        bool              `json:"clean"` // the last stop before this boot was orderly
	Restored     bool              `json:"restored"`
	RestoredFrom string            `json:"restored_from,omitzero"`
	AuthEpoch    uint64            `json:"auth_epoch"`
	PageSize     int               `json:"page_size"`
	Bytes        int64             `json:"bytes"`
	MaxBytes     int64             `json:"max_bytes"`
	FreeBytes    int64             `json:"free_bytes,omitzero"`
	Buckets      map[string]uint64 `json:"buckets,omitempty"` // bucket to rows
	StateHash    string            `json:"state_hash,omitzero"`
}

// SnapshotRequest is the body of POST /admin/v1/db/snapshot.
type SnapshotRequest struct {
	Dir string `json:"dir"` // on the node's own disk, absolute
}

// Snapshot names a finished snapshot.
type Snapshot struct {
	File     string `json:"file"`
	Manifest string `json:"manifest"` // path of the manifest beside it
	B3       string `json:"b3"`
	Seq      uint64 `json:"seq"`
}

// SnapshotLine is one line of the NDJSON answer to POST /admin/v1/db/snapshot:
// progress, then either the snapshot or the problem, which ends it.
type SnapshotLine struct {
	Done     int64    `json:"done,omitzero"`
	Total    int64    `json:"total,omitzero"`
	File     string   `json:"file,omitzero"`
	Manifest string   `json:"manifest,omitzero"`
	B3       string   `json:"b3,omitzero"`
	Seq      uint64   `json:"seq,omitzero"`
	Problem  *Problem `json:"problem,omitzero"`
}

// Finished tells whether the line is the snapshot itself.
func (l SnapshotLine) Finished() bool { return l.File != "" }

// Snapshot is the finished snapshot of the last line.
func (l SnapshotLine) Snapshot() Snapshot {
	return Snapshot{File: l.File, Manifest: l.Manifest, B3: l.B3, Seq: l.Seq}
}

// MintRequest is the body of POST /admin/v1/tokens. TTL is text such as "1h" or
// "30d"; empty is the node's default.
type MintRequest struct {
	Sub     string   `json:"sub,omitzero"`
	Tenant  string   `json:"tenant,omitzero"`
	Scopes  []string `json:"scopes"`
	TTL     string   `json:"ttl,omitzero"`
	Path    string   `json:"path,omitzero"`
	Methods []string `json:"methods,omitempty"`
}

// Token answers MintRequest. The token text is shown this once.
type Token struct {
	Token     string    `json:"token"`
	TID       string    `json:"tid"`
	ExpiresAt time.Time `json:"expires_at"`
}
