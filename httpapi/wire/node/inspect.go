package node

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// SeriesList is the body of GET /admin/v1/series: the last hour. All series have the same number of
// values, up to 720.
type SeriesList struct {
	StepS  int      `json:"step_s" doc:"seconds between two values"`
	End    int64    `json:"end" doc:"Unix seconds of the newest value; 0: there are no values yet"`
	Series []Series `json:"series"`

	Refusals []RefusalCount `json:"refusals,omitempty" doc:"of the last hour, or since the start, the most frequent first"`
}

// RefusalCount counts the refusals of one service for one reason.
type RefusalCount struct {
	Service string `json:"service"`
	Reason  string `json:"reason"`
	Count   uint64 `json:"count"`
}

// Series is one series of SeriesList.
type Series struct {
	Name   string     `json:"name"`
	Unit   string     `json:"unit" enum:"1|1/s|ms|bytes"`
	Values []*float64 `json:"values" doc:"oldest first; null: unknown"`
}

// Checkup is the body of GET /admin/v1/doctor.
type Checkup struct {
	CheckedAt time.Time     `json:"checked_at"`
	Findings  []NodeFinding `json:"findings"`
}

// NodeFinding is the result of one check of the machine or the node.
type NodeFinding struct {
	Check   string `json:"check"`
	State   string `json:"state" enum:"ok|warn|fail" doc:"fail: the node cannot keep its guarantees"`
	Message string `json:"message"`
	Next    string `json:"next,omitzero" doc:"what to do; empty if the state is ok"`
}

// Clock is the body of GET /admin/v1/clock. Times but Wall are by the node's clock.
type Clock struct {
	Reading      time.Time    `json:"reading" doc:"the node's clock"`
	Wall         time.Time    `json:"wall" doc:"the clock of the machine"`
	OffsetS      float64      `json:"offset_s" doc:"wall minus reading, seconds"`
	State        string       `json:"state" enum:"ok|ahead|behind" doc:"ahead: the wall clock is, and is not believed yet"`
	Synchronised bool         `json:"synchronised" doc:"the kernel says that the wall clock is"`
	SettlesAt    time.Time    `json:"settles_at,omitzero" doc:"when the two agree; absent: they do, or it is unknown"`
	Since        time.Time    `json:"since" doc:"beginning of the state"`
	Message      string       `json:"message" doc:"by how much they differ and which is probably wrong, for people"`
	Next         string       `json:"next,omitzero" doc:"what will happen and what to do; empty if the state is ok"`
	Expires      *ClockExpiry `json:"expires,omitzero" doc:"what ends if a wall clock ahead is accepted"`
}

// ClockExpiry counts what expires when the node's clock goes ahead.
type ClockExpiry struct {
	Keys  int64 `json:"keys" doc:"idempotency keys at most: they are forgotten one hour later"`
	Holds int64 `json:"holds" doc:"open holds, counted up to 4096"`
}

// ClockAccepted is the answer to POST /admin/v1/clock/accept.
type ClockAccepted struct {
	Reading time.Time    `json:"reading" doc:"the node's clock after the step"`
	ByS     float64      `json:"by_s" doc:"how far it went ahead, seconds"`
	Expires *ClockExpiry `json:"expires,omitzero" doc:"what expired; absent: not known"`
}

// SnapshotList is the body of GET /admin/v1/snapshots: the snapshots of this node in the folder of
// scheduled snapshots, newest first, at most 1000.
type SnapshotList struct {
	Dir       string         `json:"dir" doc:"store.snapshot_dir, absolute"`
	Snapshots []SnapshotInfo `json:"snapshots"`
}

// SnapshotInfo is one snapshot of SnapshotList.
type SnapshotInfo struct {
	Name      string    `json:"name" doc:"of its file in the folder"`
	Bytes     int64     `json:"bytes"`
	CreatedAt time.Time `json:"created_at"`
	Verified  bool      `json:"verified" doc:"the copy was verified when it was taken, and has its manifest"`
	Compacted bool      `json:"compacted,omitzero"`
	Seq       uint64    `json:"seq,omitzero" doc:"commands that it contains"`
	B3        string    `json:"b3,omitzero" format:"b3"`
}

// SessionList is the body of GET /admin/v1/sessions: the open sessions of the console, at most 64,
// oldest first.
type SessionList struct {
	Sessions []Session `json:"sessions"`
}

// Session is a browser that has entered the console.
type Session struct {
	ID        string       `json:"id" doc:"names the session; it does not open it"`
	Kind      string       `json:"kind" enum:"code|token" doc:"how it entered"`
	Who       string       `json:"who" doc:"token: and the id of its token, or uid: and the user that asked for the code"`
	Name      string       `json:"name,omitzero" doc:"subject of the token"`
	Write     bool         `json:"write" doc:"it may change things"`
	From      string       `json:"from" doc:"address of the browser that began it"`
	BeganAt   wire.Instant `json:"began_at"`
	SeenAt    wire.Instant `json:"seen_at" doc:"its last request"`
	ExpiresAt wire.Instant `json:"expires_at" doc:"at the latest; half an hour after seen_at if it is idle"`
}

// Series returns the node's series of the last hour.
func (c Client) Series(ctx context.Context) (SeriesList, error) {
	return adminGet[SeriesList](ctx, c.Client, "series")
}

// Doctor returns the findings of the node about itself and its machine.
func (c Client) Doctor(ctx context.Context) (Checkup, error) {
	return adminGet[Checkup](ctx, c.Client, "doctor")
}

// Clock returns the node's clock beside the clock of its machine.
func (c Client) Clock(ctx context.Context) (Clock, error) {
	return adminGet[Clock](ctx, c.Client, "clock")
}

// AcceptClock makes the node's clock go ahead to the wall clock at once.
func (c Client) AcceptClock(ctx context.Context) (ClockAccepted, error) {
	return adminPost[ClockAccepted](ctx, c.Client, "clock/accept", nil)
}

// Snapshots lists the snapshots in the node's folder of scheduled snapshots.
func (c Client) Snapshots(ctx context.Context) (SnapshotList, error) {
	return adminGet[SnapshotList](ctx, c.Client, "snapshots")
}

// Sessions lists the sessions of the node's console.
func (c Client) Sessions(ctx context.Context) (SessionList, error) {
	return adminGet[SessionList](ctx, c.Client, "sessions")
}

// EndSession ends a session of the node's console.
func (c Client) EndSession(ctx context.Context, id string) error {
	path := Prefix + "sessions/" + url.PathEscape(id)
	_, err := c.Do(ctx, client.Call{Method: http.MethodDelete, Path: path})
	return err
}
