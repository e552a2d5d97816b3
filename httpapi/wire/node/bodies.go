package node

import (
	"time"

	"ronbox/engines/registry/head"
	"ronbox/httpapi/wire"
)

// Status is the body of GET /admin/v1/status.
type Status struct {
	NodeID        string                       `json:"node_id"`
	Incarnation   string                       `json:"incarnation"`
	Version       string                       `json:"version"`
	Phase         string                       `json:"phase" enum:"booting|standby|recovering|running|degraded|draining|aborting|stopping|stopped|poisoned"`
	URL           string                       `json:"url"`
	Socket        string                       `json:"socket,omitzero"`
	UptimeSeconds int64                        `json:"uptime_seconds"`
	Ready         bool                         `json:"ready"`
	WriteReady    bool                         `json:"write_ready"`
	ReadReady     bool                         `json:"read_ready"`
	Degraded      bool                         `json:"degraded"`
	Missing       []string                     `json:"missing"`
	Causes        map[string]string            `json:"causes,omitempty" doc:"state of each key"`
	Services      map[string]wire.ServiceReady `json:"services"`
	Head          *head.Head                   `json:"head,omitzero"`
	Fleet         *FleetStatus                 `json:"fleet,omitzero" doc:"if fleet.enabled"`
	Cluster       *MemberStatus                `json:"cluster,omitzero" doc:"of a member of a cluster"`
	Store         StoreStatus                  `json:"store"`
}

// MemberStatus is the cluster's part of Status.
type MemberStatus struct {
	Self    string `json:"self" doc:"id of this node in the cluster"`
	Role    string `json:"role" enum:"leader|follower"`
	Leader  string `json:"leader" doc:"id of the node that leads; empty: none is known"`
	Applied uint64 `json:"applied" doc:"index of the last entry in the file"`
	Lag     uint64 `json:"lag" doc:"committed entries that are not in the file yet"`
}

// FleetStatus is the fleet's part of Status: how this node reads the registry.
type FleetStatus struct {
	Self    string `json:"self,omitzero" doc:"fleet.node"`
	Version uint64 `json:"version" doc:"of the registry; 0: none yet"`
	Nodes   int    `json:"nodes" doc:"sound node items"`
	Faults  int    `json:"faults,omitzero" doc:"faults of items, which are ignored"`
}

// StoreStatus is the store's part of Status.
type StoreStatus struct {
	File         string `json:"file"`
	Bytes        int64  `json:"bytes"`
	MaxBytes     int64  `json:"max_bytes"`
	Seq          uint64 `json:"seq" doc:"commands committed since the file was created"`
	Restored     bool   `json:"restored,omitzero"`
	RestoredFrom string `json:"restored_from,omitzero"`
	Health       string `json:"health,omitzero" doc:"empty: sound"`
}

// DrainRequest is the body of POST /admin/v1/drain.
type DrainRequest struct {
	Reason string `json:"reason,omitzero"`
	Wait   bool   `json:"wait,omitzero" doc:"answer with lines, the last of which says how the work ended"`
}

// DrainLine is one line of the NDJSON answer to POST /admin/v1/drain with wait: one when the drain
// begins, and one with the counts when only the sockets and the file are left to close.
type DrainLine struct {
	Draining  bool          `json:"draining"`
	Done      bool          `json:"done" doc:"this is the last line"`
	Finished  int           `json:"finished" doc:"sum of ended, as the next two"`
	Cancelled int           `json:"cancelled"`
	Aborted   int           `json:"aborted"`
	Ended     []Ending      `json:"ended,omitempty" doc:"by service and kind; kinds without a count are left out"`
	Problem   *wire.Problem `json:"problem,omitzero"`
}

// Ending counts the work of one kind by the way in which it ended since the node began to drain.
type Ending struct {
	Service   string `json:"service"`
	Kind      string `json:"kind" doc:"the name of a task, or request"`
	Finished  int    `json:"finished"`
	Cancelled int    `json:"cancelled"`
	Aborted   int    `json:"aborted" doc:"cut off after its deadline"`
}

// ConfigShow is the body of GET /admin/v1/config: all keys, sorted.
type ConfigShow struct {
	Version uint64      `json:"version" min:"1" doc:"1 at start, incremented by each reload"`
	Keys    []ConfigKey `json:"keys"`
}

// ConfigKey is one key of ConfigShow. Values are in TOML; a secret is shown as "***".
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

// Reloaded is the answer to POST /admin/v1/config/reload.
type Reloaded struct {
	Version uint64         `json:"version" min:"1" doc:"current version"`
	Source  string         `json:"source" doc:"the file read, empty if there is none"`
	Changed []ConfigChange `json:"changed" doc:"changed keys; if there are none, the version stays"`
}

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
	Buckets      map[string]uint64 `json:"buckets,omitempty" doc:"number of rows in each bucket"`
	StateHash    string            `json:"state_hash,omitzero" format:"b3"`
}

// SnapshotRequest is the body of POST /admin/v1/db/snapshot.
type SnapshotRequest struct {
	Dir     string `json:"dir" doc:"on the node's own disk, absolute"`
	Compact bool   `json:"compact,omitzero" doc:"a compacted copy without deleted data"`
}

// Snapshot describes a finished snapshot.
type Snapshot struct {
	File     string `json:"file"`
	Manifest string `json:"manifest" doc:"path of its manifest"`
	B3       string `json:"b3" format:"b3"`
	Seq      uint64 `json:"seq"`
}

// SnapshotLine is one line of the NDJSON answer to POST /admin/v1/db/snapshot: progress, and in
// the last line the snapshot or the problem.
type SnapshotLine struct {
	Done     int64         `json:"done,omitzero"`
	Total    int64         `json:"total,omitzero"`
	File     string        `json:"file,omitzero"`
	Manifest string        `json:"manifest,omitzero"`
	B3       string        `json:"b3,omitzero" format:"b3"`
	Seq      uint64        `json:"seq,omitzero"`
	Problem  *wire.Problem `json:"problem,omitzero"`
}

// Finished reports whether the line has the snapshot.
func (l SnapshotLine) Finished() bool { return l.File != "" }

// Snapshot returns the snapshot of the last line.
func (l SnapshotLine) Snapshot() Snapshot {
	return Snapshot{File: l.File, Manifest: l.Manifest, B3: l.B3, Seq: l.Seq}
}

// Archive is the body of GET /admin/v1/archive: the archive of the node.
type Archive struct {
	State  string `json:"state" enum:"off|starting|ok|behind|full|foreign|target_changed|failed"`
	Target string `json:"target"`
	Line   string `json:"line" doc:"id of the current line"`
	Signer string `json:"signer" doc:"public key of the objects, in hexadecimal"`

	Seq           uint64    `json:"seq" doc:"commands that the line has"`
	SentSeq       uint64    `json:"sent_seq" doc:"of them in the target"`
	SentAt        time.Time `json:"sent_at,omitzero"`
	LagSeconds    float64   `json:"lag_seconds" doc:"age of the oldest change that is not in the target"`
	UnsentBytes   int64     `json:"unsent_bytes"`
	LocalBytes    int64     `json:"local_bytes" doc:"local files, without a base"`
	BaseSeq       uint64    `json:"base_seq" doc:"commands of the newest complete base"`
	BaseAt        time.Time `json:"base_at,omitzero" doc:"when it was taken"`
	BaseParts     int       `json:"base_parts" doc:"parts of the base that is being sent"`
	BasePartsSent int       `json:"base_parts_sent"`
	LastSuccess   time.Time `json:"last_success,omitzero"`
	LastError     string    `json:"last_error,omitzero"`
	Advice        string    `json:"advice,omitzero"`
}

// ArchiveLine is one line of the NDJSON answer to POST /admin/v1/archive/base: progress, and in the
// last line the state of the archive or the problem.
type ArchiveLine struct {
	Stage   string        `json:"stage,omitzero" doc:"snapshot, in bytes; send, in parts"`
	Done    int64         `json:"done,omitzero"`
	Total   int64         `json:"total,omitzero"`
	Archive *Archive      `json:"archive,omitzero"`
	Problem *wire.Problem `json:"problem,omitzero"`
}

// Finished reports whether the line has the state of the archive.
func (l ArchiveLine) Finished() bool { return l.Archive != nil }

// DBStats is the body of GET /admin/v1/db/stats: statistics of the open file and its committer.
// Percentiles cover the time since the start.
type DBStats struct {
	Bytes               int64         `json:"bytes" doc:"size of the file"`
	MaxBytes            int64         `json:"max_bytes"`
	FreeBytes           int64         `json:"free_bytes" doc:"bytes in free pages, which later commits reuse"`
	DiskFreeBytes       int64         `json:"disk_free_bytes" doc:"bytes free in the file system; 0 in memory"`
	PageSize            int           `json:"page_size" doc:"bytes"`
	FreePages           int           `json:"free_pages"`
	PendingPages        int           `json:"pending_pages" doc:"bytes that are free after the oldest reader has ended"`
	Buckets             []BucketStats `json:"buckets"`
	Readers             int           `json:"readers" doc:"open read views"`
	OldestReaderSeconds float64       `json:"oldest_reader_seconds"`
	Groups              uint64        `json:"groups" doc:"commits since the node started"`
	Commands            uint64        `json:"commands" doc:"commands in those commits"`
	CommitP50MS         float64       `json:"commit_p50_ms" doc:"median duration of a commit in milliseconds"`
	CommitP99MS         float64       `json:"commit_p99_ms" doc:"99th percentile of the duration of a commit in milliseconds"`
	BatchP50            float64       `json:"batch_p50" doc:"median number of commands in a commit"`
	BatchP99            float64       `json:"batch_p99" doc:"99th percentile of the number of commands in a commit"`
	LedgerCache         *CacheStats   `json:"ledger_cache,omitempty" doc:"rows of the ledger in memory; only of a running node"`
}

// CacheStats are the sizes of a cache.
type CacheStats struct {
	Bytes    int64 `json:"bytes" doc:"memory of what it holds"`
	MaxBytes int64 `json:"max_bytes" doc:"what it may take; changed rows that are not in their table may take more"`
}

// BucketStats are the statistics of one bucket.
type BucketStats struct {
	Name  string `json:"name"`
	Class string `json:"class" enum:"truth|derived"`
	Rows  uint64 `json:"rows"`
	Bytes int64  `json:"bytes" doc:"bytes in use on its pages"`
	Depth int    `json:"depth" doc:"height of its tree"`
}

// CheckLine is one line of the NDJSON answer to POST /admin/v1/db/check: progress, and in the last
// line the verdict (with ok) or the problem.
type CheckLine struct {
	Stage    string        `json:"stage,omitzero" doc:"snapshot, pages, audit, registry …"`
	Done     int64         `json:"done,omitzero"`
	Total    int64         `json:"total,omitzero"`
	OK       *bool         `json:"ok,omitzero"`
	Findings []string      `json:"findings,omitempty" doc:"descriptions of the damage, for people"`
	Problem  *wire.Problem `json:"problem,omitzero"`
}

// Finished reports whether the line has the verdict.
func (l CheckLine) Finished() bool { return l.OK != nil }

// Sound reports whether the line has the verdict that the file is sound.
func (l CheckLine) Sound() bool { return l.OK != nil && *l.OK }

// TaskInfo is one task of the node, running or ended.
type TaskInfo struct {
	Service   string    `json:"service"`
	Name      string    `json:"name"`
	Instance  int       `json:"instance" doc:"from 0, if the task has several instances"`
	State     string    `json:"state" enum:"running|backoff|done"`
	Since     time.Time `json:"since" doc:"start of this state"`
	Restarts  uint64    `json:"restarts"`
	LastError string    `json:"last_error,omitzero" doc:"error of its last failed run"`
}

// TaskList is the body of GET /admin/v1/tasks, sorted by service, name and instance.
type TaskList struct {
	Tasks []TaskInfo `json:"tasks"`
}

// QueueInfo is one declared channel of the node.
type QueueInfo struct {
	Service   string   `json:"service"`
	Name      string   `json:"name"`
	Kind      string   `json:"kind" enum:"queue|broadcast|watch|ticker|slots"`
	Cap       int      `json:"cap"`
	Len       int      `json:"len"`
	Policy    string   `json:"policy" doc:"behaviour when full"`
	Dropped   uint64   `json:"dropped"`
	Producers []string `json:"producers"`
	Consumers []string `json:"consumers"`
}

// QueueList is the body of GET /admin/v1/queues, sorted by service and name.
type QueueList struct {
	Queues []QueueInfo `json:"queues"`
}

// LogLevel is the body of GET and PUT /admin/v1/log-level. An empty service means the node.
type LogLevel struct {
	Level   string `json:"level" enum:"trace|debug|info|warn|error"`
	Service string `json:"service,omitzero"`
}

// AuditRow is one row of the node's audit chain: an actor, an operation and its outcome. It is
// also the data of an audit frame. The id of the frame is its seq.
type AuditRow struct {
	Seq       uint64            `json:"seq" min:"1" doc:"from 1, without gaps"`
	At        time.Time         `json:"at" doc:"in nanoseconds, because it is part of the hash"`
	Event     string            `json:"event"`
	Decision  string            `json:"decision" enum:"allow|deny"`
	Reason    string            `json:"reason,omitzero"`
	CorrID    string            `json:"corr_id,omitzero"`
	CapID     string            `json:"cap_id,omitzero" doc:"id of the token"`
	Principal string            `json:"principal,omitzero"`
	UID       string            `json:"uid,omitzero" doc:"user id of a socket peer"`
	Detail    map[string]string `json:"detail,omitempty"`
	Prev      string            `json:"prev" format:"b3" doc:"b3 digest of the previous row; zeros for row 1"`
	Hash      string            `json:"hash" format:"b3" doc:"b3 digest of this row as it is stored"`
}

// AuditPage is the body of GET /admin/v1/audit: rows starting at ?from=, oldest first. The node
// keeps rows First to Last.
type AuditPage struct {
	Rows  []AuditRow `json:"rows"`
	First uint64     `json:"first" doc:"seq of the oldest row; 0 if there is none"`
	Last  uint64     `json:"last" doc:"seq of the newest row"`
	Next  uint64     `json:"next,omitzero" doc:"?from= of the next page"`
	Head  string     `json:"head" format:"b3" doc:"b3 digest of row Last"`
}

// AuditHello is the data of the first frame of an audit stream.
type AuditHello struct {
	Incarnation string `json:"incarnation"`
	Last        uint64 `json:"last" doc:"seq of the newest row"`
}

// AuditLagged is the data of a lagged frame of an audit stream: rows from to to were not sent. GET
// /admin/v1/audit?from= returns them.
type AuditLagged struct {
	Missed uint64 `json:"missed"`
	From   uint64 `json:"from"`
	To     uint64 `json:"to"`
	Last   uint64 `json:"last"`
}
