package wire

// DBInfo is the body of GET /admin/v1/db/info.
type DBInfo struct {
	File         string            `json:"file"`
	NodeID       string            `json:"node_id"`
	Incarnation  string            `json:"incarnation"`
	Schema       int               `json:"schema"`
	Seq          uint64            `json:"seq"`
	Clean        bool              `json:"clean" doc:"the last stop before this boot was orderly"`
	Restored     bool              `json:"restored"`
	RestoredFrom string            `json:"restored_from,omitzero"`
	AuthEpoch    uint64            `json:"auth_epoch"`
	PageSize     int               `json:"page_size" doc:"bytes"`
	Bytes        int64             `json:"bytes"`
	MaxBytes     int64             `json:"max_bytes"`
	FreeBytes    int64             `json:"free_bytes,omitzero"`
	Buckets      map[string]uint64 `json:"buckets,omitempty" doc:"bucket to rows"`
	StateHash    string            `json:"state_hash,omitzero" format:"b3"`
}

// SnapshotRequest is the body of POST /admin/v1/db/snapshot.
type SnapshotRequest struct {
	Dir     string `json:"dir" doc:"on the node's own disk, absolute"`
	Compact bool   `json:"compact,omitzero" doc:"a copy without deleted data, rather than the file as it is"`
}

// Snapshot names a finished snapshot.
type Snapshot struct {
	File     string `json:"file"`
	Manifest string `json:"manifest" doc:"path of the manifest beside it"`
	B3       string `json:"b3" format:"b3"`
	Seq      uint64 `json:"seq"`
}

// SnapshotLine is one line of the NDJSON answer to POST /admin/v1/db/snapshot:
// progress, then either the snapshot or the problem, which ends it.
type SnapshotLine struct {
	Done     int64    `json:"done,omitzero"`
	Total    int64    `json:"total,omitzero"`
	File     string   `json:"file,omitzero"`
	Manifest string   `json:"manifest,omitzero"`
	B3       string   `json:"b3,omitzero" format:"b3"`
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
	Bytes               int64         `json:"bytes" doc:"size of the file"`
	MaxBytes            int64         `json:"max_bytes"`
	FreeBytes           int64         `json:"free_bytes" doc:"in free pages, which the next commits use first"`
	DiskFreeBytes       int64         `json:"disk_free_bytes" doc:"free in the file system below, 0 in memory"`
	PageSize            int           `json:"page_size" doc:"bytes"`
	FreePages           int           `json:"free_pages"`
	PendingPages        int           `json:"pending_pages" doc:"free once the oldest reader is done"`
	Buckets             []BucketStats `json:"buckets"`
	Readers             int           `json:"readers" doc:"open read views"`
	OldestReaderSeconds float64       `json:"oldest_reader_seconds"`
	Groups              uint64        `json:"groups" doc:"commits since the node started"`
	Commands            uint64        `json:"commands" doc:"commands in those commits"`
	CommitP50MS         float64       `json:"commit_p50_ms" doc:"milliseconds that half of the commits took at most"`
	CommitP99MS         float64       `json:"commit_p99_ms" doc:"milliseconds that 99 of 100 commits took at most"`
	BatchP50            float64       `json:"batch_p50" doc:"commands that half of the commits held at most"`
	BatchP99            float64       `json:"batch_p99" doc:"commands that 99 of 100 commits held at most"`
}

// BucketStats is one bucket of DBStats.
type BucketStats struct {
	Name  string `json:"name"`
	Class string `json:"class" enum:"truth|derived"`
	Rows  uint64 `json:"rows"`
	Bytes int64  `json:"bytes" doc:"bytes in use on its pages"`
	Depth int    `json:"depth" doc:"height of its tree"`
}

// CheckLine is one line of the NDJSON answer to POST /admin/v1/db/check:
// progress, then either the verdict (ok is told) or the problem, which ends it.
type CheckLine struct {
	Stage    string   `json:"stage,omitzero" doc:"snapshot, pages, audit, registry …"`
	Done     int64    `json:"done,omitzero"`
	Total    int64    `json:"total,omitzero"`
	OK       *bool    `json:"ok,omitzero"`
	Findings []string `json:"findings,omitempty" doc:"what is wrong, for people"`
	Problem  *Problem `json:"problem,omitzero"`
}

// Finished tells whether the line is the verdict.
func (l CheckLine) Finished() bool { return l.OK != nil }

// Sound tells whether the line is the verdict that nothing is wrong.
func (l CheckLine) Sound() bool { return l.OK != nil && *l.OK }
