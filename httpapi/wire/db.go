package wire

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
	Dir     string `json:"dir"`              // on the node's own disk, absolute
	Compact bool   `json:"compact,omitzero"` // a copy without deleted data, rather than the file as it is
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

// DBStats is the body of GET /admin/v1/db/stats: what the open file and its
// committer are doing. Percentiles are of the time since the node started.
type DBStats struct {
	Bytes               int64         `json:"bytes"` // of the file
	MaxBytes            int64         `json:"max_bytes"`
	FreeBytes           int64         `json:"free_bytes"`      // in pages that the next commits use first
	DiskFreeBytes       int64         `json:"disk_free_bytes"` // of the file system below, 0 in memory
	PageSize            int           `json:"page_size"`       // bytes
	FreePages           int           `json:"free_pages"`
	PendingPages        int           `json:"pending_pages"` // free once the oldest reader is done
	Buckets             []BucketStats `json:"buckets"`
	Readers             int           `json:"readers"` // open read views
	OldestReaderSeconds float64       `json:"oldest_reader_seconds"`
	Groups              uint64        `json:"groups"`   // commits since start
	Commands            uint64        `json:"commands"` // in those commits
	CommitP50MS         float64       `json:"commit_p50_ms"`
	CommitP99MS         float64       `json:"commit_p99_ms"`
	BatchP50            float64       `json:"batch_p50"` // commands in one commit
	BatchP99            float64       `json:"batch_p99"`
}

// BucketStats is one bucket of DBStats.
type BucketStats struct {
	Name  string `json:"name"`
	Class string `json:"class"` // truth, derived or node
	Rows  uint64 `json:"rows"`
	Bytes int64  `json:"bytes"` // in use on its pages
	Depth int    `json:"depth"` // of its tree
}

// CheckLine is one line of the NDJSON answer to POST /admin/v1/db/check:
// progress, then either the verdict (ok is told) or the problem, which ends it.
type CheckLine struct {
	Stage    string   `json:"stage,omitzero"` // snapshot, pages, audit, registry …
	Done     int64    `json:"done,omitzero"`
	Total    int64    `json:"total,omitzero"`
	OK       *bool    `json:"ok,omitzero"`
	Findings []string `json:"findings,omitempty"` // what is wrong, for people
	Problem  *Problem `json:"problem,omitzero"`
}

// Finished tells whether the line is the verdict.
func (l CheckLine) Finished() bool { return l.OK != nil }

// Sound tells whether the line is the verdict that nothing is wrong.
func (l CheckLine) Sound() bool { return l.OK != nil && *l.OK }
