package node

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// Client calls the routes of the operator, and those that need no scope.
type Client struct{ *client.Client }

// NewClient gives the calls of the operator over c.
func NewClient(c *client.Client) Client { return Client{c} }

// adminPath is before every route of the operator.
const adminPath = "/admin/v1/"

// adminGet reads what an operator's route answers.
func adminGet[T any](ctx context.Context, c *client.Client, route string) (T, error) {
	return client.Ask[T](ctx, c, client.Call{Path: adminPath + route})
}

// adminPost sends body, none when nil, to an operator's route and reads the answer.
func adminPost[T any](ctx context.Context, c *client.Client, route string, body any) (T, error) {
	return client.Ask[T](ctx, c, client.Call{Method: http.MethodPost, Path: adminPath + route, Body: body})
}

// Status reads the node's own view of itself.
func (c Client) Status(ctx context.Context) (Status, error) {
	return adminGet[Status](ctx, c.Client, "status")
}

// Drain asks the node to stop in order; it answers before it does.
func (c Client) Drain(ctx context.Context, reason string) error {
	_, err := c.Do(ctx, client.Call{Method: http.MethodPost, Path: adminPath + "drain", Body: DrainRequest{Reason: reason}})
	return err
}

// Config reads every current key and where its value came from; a secret shows as "***".
func (c Client) Config(ctx context.Context) (ConfigShow, error) {
	return adminGet[ConfigShow](ctx, c.Client, "config")
}

// Reload has the node read its configuration again. A refusal changes nothing; its details name the keys.
func (c Client) Reload(ctx context.Context) (Reloaded, error) {
	return adminPost[Reloaded](ctx, c.Client, "config/reload", nil)
}

// DBInfo reads the figures of the open database file.
func (c Client) DBInfo(ctx context.Context) (DBInfo, error) {
	return adminGet[DBInfo](ctx, c.Client, "db/info")
}

// DBStats reads what the file's pages and its committer are doing.
func (c Client) DBStats(ctx context.Context) (DBStats, error) {
	return adminGet[DBStats](ctx, c.Client, "db/stats")
}

// AcceptRestore lets a restored node write again.
func (c Client) AcceptRestore(ctx context.Context) error {
	_, err := c.Do(ctx, client.Call{Method: http.MethodPost, Path: adminPath + "db/accept-restore"})
	return err
}

// Snapshot has the node write a snapshot into r.Dir, a path on its own disk, and calls progress, if there is one, as it
// goes on. It takes as long as ctx and the node let it, an hour at most; the client's timeout does not count.
func (c Client) Snapshot(ctx context.Context, r SnapshotRequest, progress func(done, total int64)) (out Snapshot, err error) {
	k := client.Call{Method: http.MethodPost, Path: adminPath + "db/snapshot", Body: r}
	err = client.ReadLines(ctx, c.Client, k, func(l SnapshotLine) (bool, error) {
		switch {
		case l.Problem != nil:
			return true, l.Problem
		case l.Finished():
			out = l.Snapshot()
			return true, nil
		case progress != nil:
			progress(l.Done, l.Total)
		}
		return false, nil
	})
	return out, err
}

// CheckDB has the node check a copy of its file and calls progress, if there is one, as it goes on. The line returned is
// the verdict: that something is wrong with the file is an answer, not an error. It takes as long as Snapshot may.
func (c Client) CheckDB(ctx context.Context, progress func(CheckLine)) (out CheckLine, err error) {
	k := client.Call{Method: http.MethodPost, Path: adminPath + "db/check"}
	err = client.ReadLines(ctx, c.Client, k, func(l CheckLine) (bool, error) {
		switch {
		case l.Problem != nil:
			return true, l.Problem
		case l.Finished():
			out = l
			return true, nil
		case progress != nil:
			progress(l)
		}
		return false, nil
	})
	return out, err
}

// Tasks lists what runs in the node.
func (c Client) Tasks(ctx context.Context) (TaskList, error) {
	return adminGet[TaskList](ctx, c.Client, "tasks")
}

// Queues lists the node's channels and how full they are.
func (c Client) Queues(ctx context.Context) (QueueList, error) {
	return adminGet[QueueList](ctx, c.Client, "queues")
}

// LogLevel reads what the node logs.
func (c Client) LogLevel(ctx context.Context) (LogLevel, error) {
	return adminGet[LogLevel](ctx, c.Client, "log-level")
}

// SetLogLevel sets what the node logs until it is set again, reloaded or stopped. Idempotent.
func (c Client) SetLogLevel(ctx context.Context, l LogLevel) (LogLevel, error) {
	return client.Ask[LogLevel](ctx, c.Client, client.Call{Method: http.MethodPut, Path: adminPath + "log-level", Body: l})
}

const (
	profileTime  = 10 * time.Second // how long the node samples by default
	maxProfile   = 1 << 30          // bytes: five minutes of execution trace of a busy node
	profileGrace = 30 * time.Second // to hand over what was gathered
)

// Profile writes a profile of the node to w: heap, allocs, goroutine or threadcreate as they stand, block, mutex, profile or
// trace of the next d, flight of the five seconds just past, or of those to come, at most d, if nothing has recorded them. d is
// in whole seconds, rounded up; 0 leaves it to the node. Over the admin socket only. The client's timeout does not count: the
// call may take d and half a minute. After an error w holds a part.
func (c Client) Profile(ctx context.Context, name string, d time.Duration, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, max(d, profileTime)+profileGrace)
	defer cancel()
	q := client.Query{}.Number("seconds", uint64((max(d, 0)+time.Second-1)/time.Second))
	k := client.Call{Path: adminPath + "debug/profile/" + url.PathEscape(name), Query: q}
	return c.Copy(ctx, k, w, maxProfile)
}

// Mint makes a token. Its text is in this answer and nowhere else.
func (c Client) Mint(ctx context.Context, m MintRequest) (Token, error) {
	return adminPost[Token](ctx, c.Client, "tokens", m)
}

// Tokens reads one page of the current tokens, without their texts; cursor is the Next of the page before, limit 0
// the node's own page size.
func (c Client) Tokens(ctx context.Context, cursor string, limit int) (TokenList, error) {
	k := client.Call{Path: adminPath + "tokens", Query: client.Query{}.Page(cursor, limit)}
	return client.Ask[TokenList](ctx, c.Client, k)
}

// Revoke ends tokens. It has taken effect when the answer comes. Idempotent.
func (c Client) Revoke(ctx context.Context, r RevokeRequest) (Revoked, error) {
	return adminPost[Revoked](ctx, c.Client, "tokens/revoke", r)
}

// VerifyToken asks what a token would be allowed, and why not.
func (c Client) VerifyToken(ctx context.Context, r VerifyRequest) (Verdict, error) {
	return adminPost[Verdict](ctx, c.Client, "tokens/verify", r)
}

// Keys lists the root keys of tokens, never what is in them.
func (c Client) Keys(ctx context.Context) (KeyList, error) {
	return adminGet[KeyList](ctx, c.Client, "keys")
}

// RotateKey makes a new root key for the tokens minted from now on; those of the one before stay valid until they expire.
// Not idempotent: each call makes one.
func (c Client) RotateKey(ctx context.Context) (KeyInfo, error) {
	return adminPost[KeyInfo](ctx, c.Client, "keys/rotate", nil)
}

// RetireKey ends a root key and every token made with it.
func (c Client) RetireKey(ctx context.Context, kid string) (KeyInfo, error) {
	return adminPost[KeyInfo](ctx, c.Client, "keys/"+url.PathEscape(kid)+"/retire", nil)
}

// Audit reads one page of the node's audit chain, from seq from on; limit 0 is the node's own page size.
func (c Client) Audit(ctx context.Context, from uint64, limit int) (AuditPage, error) {
	k := client.Call{
		Path: adminPath + "audit", Limit: maxAudit,
		Query: client.Query{}.Text("from", strconv.FormatUint(from, 10)).Page("", limit),
	}
	return client.Ask[AuditPage](ctx, c.Client, k)
}

// auditPage is how many rows are asked for at a time to fill a gap. A row takes half a MiB at most, six times that if all of it must be
// escaped, and mostly less than 1 KiB.
const auditPage = 100

const maxAudit = 256 << 20 // bytes of a page

// AuditStream calls each for every new row of the audit chain, in order, and for those after o.LastEventID
// when that is given. What the stream leaves out it reads from the chain itself, so that a gap in the numbers means rows
// that the node no longer keeps, and a number lower than the one before a node that was restored. It ends as client.Follow does.
func (c Client) AuditStream(ctx context.Context, o client.StreamOptions, each func(AuditRow) error) error {
	a := &auditFollower{c: c, each: each}
	f := client.Feed{Path: adminPath + "audit/stream", Numbered: EventAudit, Stands: auditStands}
	return c.Follow(ctx, f, o, func(e client.Event) error { return a.event(ctx, e) })
}

func auditStands(hello []byte) (uint64, error) {
	var h AuditHello
	err := json.Unmarshal(hello, &h)
	return h.Last, err
}

// auditFollower is the state of one AuditStream call, used by its caller's goroutine alone.
type auditFollower struct {
	c    Client
	each func(AuditRow) error
	told uint64 // seq of the last row passed on
}

func (a *auditFollower) event(ctx context.Context, e client.Event) error {
	switch e.Name {
	case EventAudit:
		var row AuditRow
		if err := json.Unmarshal(e.Data, &row); err != nil {
			return fmt.Errorf("%w: %w", client.ErrFrame, err)
		}
		if row.Seq <= a.told { // a gap was read past it, and then the connection broke
			return nil
		}
		return a.tell(row)
	case wire.EventLagged:
		var gap AuditLagged
		if err := json.Unmarshal(e.Data, &gap); err != nil {
			return fmt.Errorf("%w: %w", client.ErrFrame, err)
		}
		if gap.To < gap.From { // the chain ends before what was passed on: the node was restored
			a.told = gap.To
			return nil
		}
		if a.told < gap.To {
			return a.fill(ctx, max(gap.From, a.told+1), gap.To)
		}
	}
	return nil
}

func (a *auditFollower) tell(row AuditRow) error {
	a.told = row.Seq
	return a.each(row)
}

// fill passes on the rows from..to that the node still keeps.
func (a *auditFollower) fill(ctx context.Context, from, to uint64) error {
	for {
		p, err := a.c.Audit(ctx, from, auditPage)
		if err != nil {
			return fmt.Errorf("%w: %w", client.ErrResume, err)
		}
		for _, row := range p.Rows {
			if row.Seq < from || row.Seq > to {
				return nil // what comes after is the stream's
			}
			if err := a.tell(row); err != nil || row.Seq == to {
				return err
			}
			from = row.Seq + 1
		}
		if len(p.Rows) == 0 {
			return nil
		}
	}
}
