package node

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/unit"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// Client calls the operator's routes, and those that need no scope.
type Client struct{ *client.Client }

// NewClient returns the operator's calls over c.
func NewClient(c *client.Client) Client { return Client{c} }

// Prefix is the prefix of the operator's routes.
const Prefix = "/admin/v1/"

// adminGet performs a GET on an operator's route.
func adminGet[T any](ctx context.Context, c *client.Client, route string) (T, error) {
	return client.Ask[T](ctx, c, client.Call{Path: Prefix + route})
}

// adminPost sends body, which may be nil, to an operator's route and returns the answer.
func adminPost[T any](ctx context.Context, c *client.Client, route string, body any) (T, error) {
	return client.Ask[T](ctx, c, client.Call{Method: http.MethodPost, Path: Prefix + route, Body: body})
}

// Status returns the node's status.
func (c Client) Status(ctx context.Context) (Status, error) {
	return adminGet[Status](ctx, c.Client, "status")
}

// Drain asks the node to stop in order. It returns before the node stops.
func (c Client) Drain(ctx context.Context, reason string) error {
	_, err := c.Do(
		ctx,
		client.Call{Method: http.MethodPost, Path: Prefix + "drain", Body: DrainRequest{Reason: reason}},
	)
	return err
}

// DrainAndWait is Drain, and returns the counts of the work that ended once the node has only its
// sockets and its file to close. It is bounded like Snapshot.
func (c Client) DrainAndWait(ctx context.Context, reason string) (out DrainLine, err error) {
	k := client.Call{Method: http.MethodPost, Path: Prefix + "drain", Body: DrainRequest{Reason: reason, Wait: true}}
	err = client.ReadLines(ctx, c.Client, k, func(l DrainLine) (bool, error) {
		if l.Problem != nil {
			return true, l.Problem
		}
		out = l
		return l.Done, nil
	})
	return out, err
}

// Config returns every key with its value and its source. Secrets are shown as "***".
func (c Client) Config(ctx context.Context) (ConfigShow, error) {
	return adminGet[ConfigShow](ctx, c.Client, "config")
}

// Reload makes the node read its configuration again. A refusal changes nothing, and its details
// name the keys.
func (c Client) Reload(ctx context.Context) (Reloaded, error) {
	return adminPost[Reloaded](ctx, c.Client, "config/reload", nil)
}

// DBInfo returns the figures of the open database file.
func (c Client) DBInfo(ctx context.Context) (DBInfo, error) {
	return adminGet[DBInfo](ctx, c.Client, "db/info")
}

// DBStats returns statistics of the file's pages and of its committer.
func (c Client) DBStats(ctx context.Context) (DBStats, error) {
	return adminGet[DBStats](ctx, c.Client, "db/stats")
}

// AcceptRestore permits writes on a restored node.
func (c Client) AcceptRestore(ctx context.Context) error {
	_, err := c.Do(ctx, client.Call{Method: http.MethodPost, Path: Prefix + "db/accept-restore"})
	return err
}

// Snapshot makes the node write a snapshot into r.Dir, a path on its own disk, and calls progress,
// which may be nil. It is bounded by ctx and by an hour, not by the client's timeout.
func (c Client) Snapshot(
	ctx context.Context,
	r SnapshotRequest,
	progress func(done, total int64),
) (out Snapshot, err error) {
	k := client.Call{Method: http.MethodPost, Path: Prefix + "db/snapshot", Body: r}
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

// CheckDB makes the node check a copy of its file and calls progress, which may be nil. It returns
// the verdict: a damaged file is not an error. It is bounded like Snapshot.
func (c Client) CheckDB(ctx context.Context, progress func(CheckLine)) (out CheckLine, err error) {
	k := client.Call{Method: http.MethodPost, Path: Prefix + "db/check"}
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

// Archive returns the state of the node's archive.
func (c Client) Archive(ctx context.Context) (Archive, error) {
	return adminGet[Archive](ctx, c.Client, "archive")
}

// ArchiveBase makes the node send a base to its archive and calls progress, which may be nil. It is
// bounded like Snapshot.
func (c Client) ArchiveBase(ctx context.Context, progress func(ArchiveLine)) (out Archive, err error) {
	k := client.Call{Method: http.MethodPost, Path: Prefix + "archive/base"}
	err = client.ReadLines(ctx, c.Client, k, func(l ArchiveLine) (bool, error) {
		switch {
		case l.Problem != nil:
			return true, l.Problem
		case l.Finished():
			out = *l.Archive
			return true, nil
		case progress != nil:
			progress(l)
		}
		return false, nil
	})
	return out, err
}

// Tasks lists the node's tasks.
func (c Client) Tasks(ctx context.Context) (TaskList, error) {
	return adminGet[TaskList](ctx, c.Client, "tasks")
}

// Queues lists the node's channels with their fill levels.
func (c Client) Queues(ctx context.Context) (QueueList, error) {
	return adminGet[QueueList](ctx, c.Client, "queues")
}

// LogLevel returns the node's log levels.
func (c Client) LogLevel(ctx context.Context) (LogLevel, error) {
	return adminGet[LogLevel](ctx, c.Client, "log-level")
}

// SetLogLevel sets a log level until the next call, reload or stop. Idempotent.
func (c Client) SetLogLevel(ctx context.Context, l LogLevel) (LogLevel, error) {
	return client.Ask[LogLevel](ctx, c.Client,
		client.Call{Method: http.MethodPut, Path: Prefix + "log-level", Body: l})
}

const (
	profileTime  = 10 * time.Second // default duration of sampling
	maxProfile   = 1 << 30          // bytes: five minutes of execution trace of a busy node
	profileGrace = 30 * time.Second // to transfer the profile
)

// Profile writes a profile of the node to w. heap, allocs, goroutine and threadcreate are the
// current state. block, mutex, profile and trace cover the next d. flight covers the last five
// seconds, or up to d of the next ones without a recording. d is rounded up to seconds; 0 means
// the node's default. Profiles are available over the admin socket only. The client's timeout does
// not apply: the call may take d and half a minute. After an error w has received a part.
func (c Client) Profile(ctx context.Context, name string, d time.Duration, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, max(d, profileTime)+profileGrace)
	defer cancel()
	q := client.Query{}.Number("seconds", uint64((max(d, 0)+time.Second-1)/time.Second))
	k := client.Call{Path: Prefix + "debug/profile/" + url.PathEscape(name), Query: q}
	return c.Copy(ctx, k, w, maxProfile)
}

// Mint mints a token. Only this answer contains its text.
func (c Client) Mint(ctx context.Context, m MintRequest) (Token, error) {
	return adminPost[Token](ctx, c.Client, "tokens", m)
}

// Tokens returns one page of the current tokens, without their texts. cursor is the Next of the
// previous page. A limit of 0 means the node's page size.
func (c Client) Tokens(ctx context.Context, cursor string, limit int) (TokenList, error) {
	k := client.Call{Path: Prefix + "tokens", Query: client.Query{}.Page(cursor, limit)}
	return client.Ask[TokenList](ctx, c.Client, k)
}

// Revoke revokes tokens. The revocation is in effect when Revoke returns. Idempotent.
func (c Client) Revoke(ctx context.Context, r RevokeRequest) (Revoked, error) {
	return adminPost[Revoked](ctx, c.Client, "tokens/revoke", r)
}

// VerifyToken returns whether a token permits a request, and the reasons if not.
func (c Client) VerifyToken(ctx context.Context, r VerifyRequest) (Verdict, error) {
	return adminPost[Verdict](ctx, c.Client, "tokens/verify", r)
}

// Keys lists the root keys of tokens, without their secrets.
func (c Client) Keys(ctx context.Context) (KeyList, error) {
	return adminGet[KeyList](ctx, c.Client, "keys")
}

// RotateKey creates a new root key for new tokens. Tokens of the previous key stay valid until they
// expire. Not idempotent: each call creates a key.
func (c Client) RotateKey(ctx context.Context) (KeyInfo, error) {
	return adminPost[KeyInfo](ctx, c.Client, "keys/rotate", nil)
}

// RetireKey retires a root key. Every token minted with it becomes invalid.
func (c Client) RetireKey(ctx context.Context, kid string) (KeyInfo, error) {
	return adminPost[KeyInfo](ctx, c.Client, "keys/"+url.PathEscape(kid)+"/retire", nil)
}

// Audit returns one page of the node's audit chain, starting at seq from. A limit of 0 means the
// node's page size.
func (c Client) Audit(ctx context.Context, from uint64, limit int) (AuditPage, error) {
	k := client.Call{
		Path: Prefix + "audit", Limit: maxAudit,
		Query: client.Query{}.Text("from", strconv.FormatUint(from, 10)).Page("", limit),
	}
	return client.Ask[AuditPage](ctx, c.Client, k)
}

// auditPage is the number of rows requested at a time to fill a gap. A row has half a MiB at most,
// six times that if all of it must be escaped, and usually less than 1 KiB.
const auditPage = 100

const maxAudit = 256 << 20 // bytes of a page

// AuditStream calls each for every new row of the audit chain, in order, and for those after
// o.LastEventID if it is set. It reads rows that the stream omits from the chain. So a gap in the
// numbers means that the node no longer keeps the rows, and a lower number means that the node was
// restored. It ends like client.Follow.
func (c Client) AuditStream(ctx context.Context, o client.StreamOptions, each func(AuditRow) error) error {
	a := &auditFollower{c: c, each: each}
	f := client.Feed{Path: Prefix + "audit/stream", Numbered: EventAudit, Stands: auditStands}
	return c.Follow(ctx, f, o, func(e client.Event) error { return a.event(ctx, e) })
}

func auditStands(hello []byte) (uint64, error) {
	var h AuditHello
	err := json.Unmarshal(hello, &h)
	return h.Last, err
}

// auditFollower is the state of one AuditStream call. Only its caller's goroutine uses it.
type auditFollower struct {
	c    Client
	each func(AuditRow) error
	told uint64 // seq of the last delivered row
}

func (a *auditFollower) event(ctx context.Context, e client.Event) error {
	switch e.Name {
	case EventAudit:
		var row AuditRow
		if err := json.Unmarshal(e.Data, &row); err != nil {
			return fmt.Errorf("%w: %w", client.ErrFrame, err)
		}
		if row.Seq <= a.told { // a gap was filled beyond it before the connection broke
			return nil
		}
		return a.tell(row)
	case wire.EventLagged:
		var gap AuditLagged
		if err := json.Unmarshal(e.Data, &gap); err != nil {
			return fmt.Errorf("%w: %w", client.ErrFrame, err)
		}
		if gap.To < gap.From { // the chain ends before the last delivered row: the node was restored
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

// fill delivers the rows from..to that the node still keeps.
func (a *auditFollower) fill(ctx context.Context, from, to uint64) error {
	for {
		p, err := a.c.Audit(ctx, from, auditPage)
		if err != nil {
			return fmt.Errorf("%w: %w", client.ErrResume, err)
		}
		for _, row := range p.Rows {
			if row.Seq < from || row.Seq > to {
				return nil // the stream delivers the rest
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

// SnapshotDir is the folder of a snapshot that the node cannot write: the details of the problem
// snapshot_dir.
type SnapshotDir struct {
	Path string
	User string // that the node runs as
	Unit string // of systemd that runs the node, or ""
}

// Next returns what lets the node take the snapshot. detail is that of the problem, with the cause.
func (d SnapshotDir) Next(detail string) string {
	because := func(cause syscall.Errno) bool { return strings.Contains(detail, ": "+cause.Error()+" (") }
	switch {
	case because(syscall.ENOTDIR):
		return "name a folder"
	case because(syscall.EROFS) && d.Unit == "":
		return "name a folder on a file system that is mounted for writing"
	}
	create := unit.Shell("install", "-d", "-o", d.User, "-m", "700", d.Path)
	if d.Unit == "" {
		return "name a folder that " + d.User + " may write, or run `" + create + "` as root"
	}
	name := strings.TrimSuffix(d.Unit, ".service")
	return "name a folder that the unit may write, or permit this one as root: `" + create + "`, `systemctl edit " +
		name + "` with the lines [Service] and ReadWritePaths=" + d.Path + ", `systemctl restart " + name + "`"
}
