package node

import (
	"time"

	registryapi "ronbox/httpapi/registry"
	"ronbox/httpapi/wire"
)

// Status is the body of GET /admin/v1/status.
type Status struct {
	NodeID        string                       `json:"node_id"`
	Incarnation   string                       `json:"incarnation"`
	Version       string                       `json:"version"`
	Phase         string                       `json:"phase" enum:"booting|recovering|running|degraded|draining|aborting|stopping|stopped|poisoned"`
	URL           string                       `json:"url"`
	Socket        string                       `json:"socket,omitzero"`
	UptimeSeconds int64                        `json:"uptime_seconds"`
	Ready         bool                         `json:"ready"`
	WriteReady    bool                         `json:"write_ready"`
	ReadReady     bool                         `json:"read_ready"`
	Degraded      bool                         `json:"degraded"`
	Missing       []string                     `json:"missing"`
	Causes        map[string]string            `json:"causes,omitempty" doc:"key to what was seen"`
	Services      map[string]wire.ServiceReady `json:"services"`
	Head          *registryapi.Head            `json:"head,omitzero"`
	Store         StoreStatus                  `json:"store"`
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

// ConfigShow is the body of GET /admin/v1/config: every current key, sorted.
type ConfigShow struct {
	Version uint64      `json:"version" min:"1" doc:"1 at start, one more with every reload"`
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
	Version uint64         `json:"version" min:"1" doc:"version in force now"`
	Source  string         `json:"source" doc:"the file read, empty if there is none"`
	Changed []ConfigChange `json:"changed" doc:"keys changed; the version stays if there are none"`
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
	Done     int64         `json:"done,omitzero"`
	Total    int64         `json:"total,omitzero"`
	File     string        `json:"file,omitzero"`
	Manifest string        `json:"manifest,omitzero"`
	B3       string        `json:"b3,omitzero" format:"b3"`
	Seq      uint64        `json:"seq,omitzero"`
	Problem  *wire.Problem `json:"problem,omitzero"`
}

// Finished reports whether the line is the snapshot itself.
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
// progress, then either the verdict (ok is there) or the problem, which ends it.
type CheckLine struct {
	Stage    string        `json:"stage,omitzero" doc:"snapshot, pages, audit, registry …"`
	Done     int64         `json:"done,omitzero"`
	Total    int64         `json:"total,omitzero"`
	OK       *bool         `json:"ok,omitzero"`
	Findings []string      `json:"findings,omitempty" doc:"what is wrong, for people"`
	Problem  *wire.Problem `json:"problem,omitzero"`
}

// Finished reports whether the line is the verdict.
func (l CheckLine) Finished() bool { return l.OK != nil }

// Sound reports whether the line is the verdict that nothing is wrong.
func (l CheckLine) Sound() bool { return l.OK != nil && *l.OK }

// TaskInfo is one running task of the node, or one that has ended.
type TaskInfo struct {
	Service   string    `json:"service"`
	Name      string    `json:"name"`
	Instance  int       `json:"instance" doc:"from 0, where a task runs more than once"`
	State     string    `json:"state" enum:"running|backoff|done"`
	Since     time.Time `json:"since" doc:"begin of this state"`
	Restarts  uint64    `json:"restarts"`
	LastError string    `json:"last_error,omitzero" doc:"what ended its last life"`
}

// TaskList is the body of GET /admin/v1/tasks, sorted by service, name and instance.
type TaskList struct {
	Tasks []TaskInfo `json:"tasks"`
}

// QueueInfo is one declared channel of the node.
type QueueInfo struct {
	Service   string   `json:"service"`
	Name      string   `json:"name"`
	Kind      string   `json:"kind" enum:"queue|broadcast|watch|ticker"`
	Cap       int      `json:"cap"`
	Len       int      `json:"len"`
	Policy    string   `json:"policy" doc:"what happens to what does not fit"`
	Dropped   uint64   `json:"dropped"`
	Producers []string `json:"producers"`
	Consumers []string `json:"consumers"`
}

// QueueList is the body of GET /admin/v1/queues, sorted by service and name.
type QueueList struct {
	Queues []QueueInfo `json:"queues"`
}

// LogLevel is the body of GET and PUT /admin/v1/log-level: of one service or,
// when that is empty, of the node.
type LogLevel struct {
	Level   string `json:"level" enum:"trace|debug|info|warn|error"`
	Service string `json:"service,omitzero"`
}

// MintRequest is the body of POST /admin/v1/tokens. TTL is text such as "1h" or
// "30d"; empty is the node's default.
type MintRequest struct {
	Sub     string   `json:"sub,omitzero"`
	Tenant  string   `json:"tenant,omitzero"`
	Scopes  []string `json:"scopes"`
	TTL     string   `json:"ttl,omitzero" format:"duration?"`
	Path    string   `json:"path,omitzero"`
	Methods []string `json:"methods,omitempty"`
	Caveats []string `json:"caveats,omitempty" doc:"more caveats: ip = 10.0.0.0/8"`
}

// Token answers MintRequest. The token text is shown this once.
type Token struct {
	Token     string    `json:"token"`
	TID       string    `json:"tid" format:"ulid"`
	ExpiresAt time.Time `json:"expires_at"`
}

// TokenInfo is one minted token without its secret part: an entry of TokenList.
type TokenInfo struct {
	TID       string    `json:"tid" format:"ulid"`
	Kid       string    `json:"kid" doc:"the root key that made it"`
	Sub       string    `json:"sub"`
	Tenant    string    `json:"tenant,omitzero"`
	Scopes    []string  `json:"scopes"`
	Caveats   []string  `json:"caveats,omitempty" doc:"as minted; a holder may have added more"`
	IssuedAt  time.Time `json:"issued_at"`
	ExpiresAt time.Time `json:"expires_at"`
	Revoked   bool      `json:"revoked"`
}

// TokenList is the body of GET /admin/v1/tokens: those not yet expired, oldest first.
type TokenList struct {
	Tokens []TokenInfo `json:"tokens"`
	Next   string      `json:"next,omitzero" doc:"?cursor= of the next page"`
}

// RevokeRequest is the body of POST /admin/v1/tokens/revoke. Exactly one of
// TID, Kid, Tenant and All is given; All ends every token made so far.
type RevokeRequest struct {
	TID    string `json:"tid,omitzero"`
	Kid    string `json:"kid,omitzero"`
	Tenant string `json:"tenant,omitzero"`
	All    bool   `json:"all,omitzero"`
	Reason string `json:"reason,omitzero" doc:"for the audit trail"`
}

// Revoked answers RevokeRequest; it has taken effect when it is sent.
type Revoked struct {
	What    string    `json:"what" enum:"tid|kid|tenant|epoch"`
	Value   string    `json:"value"`
	Until   time.Time `json:"until,omitzero" doc:"when the last such token would have expired by itself"`
	Already bool      `json:"already,omitzero" doc:"it was revoked before"`
}

// VerifyRequest is the body of POST /admin/v1/tokens/verify: a token and the
// request it would be used for. Of what every request has, service to ip, a
// caveat fails on a member left out; without a scope any token will do. What a
// request may not have, tenant to bytes, is not asked about where it is left
// out: engines look there when they know.
type VerifyRequest struct {
	Token   string `json:"token"`
	Scope   string `json:"scope,omitzero"`
	Service string `json:"service,omitzero" doc:"the audience"`
	Method  string `json:"method,omitzero"`
	Path    string `json:"path,omitzero"`
	IP      string `json:"ip,omitzero"`
	Tenant  string `json:"tenant,omitzero"`
	Account string `json:"account,omitzero"`
	Asset   string `json:"asset,omitzero"`
	Amount  string `json:"amount,omitzero" format:"amount?" doc:"decimal minor units"`
	Epoch   string `json:"epoch,omitzero"`
	Signer  string `json:"signer,omitzero"`
	Bytes   int64  `json:"bytes,omitzero" doc:"size of the body"`
}

// Verdict answers VerifyRequest. What follows Reason is only there when the
// token is authentic.
type Verdict struct {
	Allowed   bool           `json:"allowed"`
	Authentic bool           `json:"authentic" doc:"the node made it and nobody changed it"`
	Reason    string         `json:"reason,omitzero"`
	TID       string         `json:"tid,omitzero" format:"ulid"`
	Kid       string         `json:"kid,omitzero"`
	Sub       string         `json:"sub,omitzero"`
	Tenant    string         `json:"tenant,omitzero"`
	Epoch     uint64         `json:"epoch,omitzero"`
	Scopes    []string       `json:"scopes,omitempty"`
	ExpiresAt time.Time      `json:"expires_at,omitzero"`
	Failed    []FailedCaveat `json:"failed,omitempty"`
}

// FailedCaveat is one caveat that forbids what VerifyRequest asks about.
type FailedCaveat struct {
	Caveat string `json:"caveat"`
	Reason string `json:"reason"`
}

// KeyInfo is a root key of tokens: an entry of KeyList, and the answer to
// POST /admin/v1/keys/rotate and /keys/{kid}/retire. The key itself is nowhere.
type KeyInfo struct {
	Kid         string    `json:"kid"`
	State       string    `json:"state" enum:"active|verify|retired"`
	CreatedAt   time.Time `json:"created_at"`
	RotateAt    time.Time `json:"rotate_at,omitzero" doc:"of the active one: when the next takes its place"`
	VerifyUntil time.Time `json:"verify_until,omitzero" doc:"of one in overlap: when its last token expires"`
}

// KeyList is the body of GET /admin/v1/keys, newest first.
type KeyList struct {
	Keys   []KeyInfo `json:"keys"`
	Active string    `json:"active" doc:"kid of the key that signs new tokens"`
}

// EventAudit names the frames of GET /admin/v1/audit/stream that carry an AuditRow.
const EventAudit = "audit"

// AuditRow is one row of the node's audit chain: who did what, and how it was
// decided. It is also the data of an audit frame, whose id is its seq.
type AuditRow struct {
	Seq       uint64            `json:"seq" min:"1" doc:"from 1, without gaps"`
	At        time.Time         `json:"at" doc:"to the nanosecond: the chain hashes it"`
	Event     string            `json:"event"`
	Decision  string            `json:"decision" enum:"allow|deny"`
	Reason    string            `json:"reason,omitzero"`
	CorrID    string            `json:"corr_id,omitzero"`
	CapID     string            `json:"cap_id,omitzero" doc:"id of the token"`
	Principal string            `json:"principal,omitzero"`
	UID       string            `json:"uid,omitzero" doc:"user id of a socket peer"`
	Detail    map[string]string `json:"detail,omitempty"`
	Prev      string            `json:"prev" format:"b3" doc:"b3 digest of the row before, zeros before row 1"`
	Hash      string            `json:"hash" format:"b3" doc:"b3 digest of this row as it is stored"`
}

// AuditPage is the body of GET /admin/v1/audit: rows from ?from= on, oldest
// first. The ring keeps First..Last; what is older is gone.
type AuditPage struct {
	Rows  []AuditRow `json:"rows"`
	First uint64     `json:"first" doc:"seq of the oldest row kept, 0 while there is none"`
	Last  uint64     `json:"last" doc:"seq of the newest row"`
	Next  uint64     `json:"next,omitzero" doc:"?from= of the next page"`
	Head  string     `json:"head" format:"b3" doc:"b3 digest of row Last"`
}

// AuditHello is the data of the first frame of an audit stream.
type AuditHello struct {
	Incarnation string `json:"incarnation"`
	Last        uint64 `json:"last" doc:"seq of the newest row"`
}

// AuditLagged is the data of a lagged frame of an audit stream: rows from..to
// were not sent; GET /admin/v1/audit?from= has them.
type AuditLagged struct {
	Missed uint64 `json:"missed"`
	From   uint64 `json:"from"`
	To     uint64 `json:"to"`
	Last   uint64 `json:"last"`
}
