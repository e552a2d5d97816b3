package server

import (
	"math"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/clock"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/initdir"
	nodeapi "ronbox/httpapi/wire/node"
	walletapi "ronbox/httpapi/wire/wallet"
	"ronbox/store"
)

// unsynced starts a node whose wall clock is off by offset, ns, and not synchronised.
func unsynced(t *testing.T, cfg *config.Config, offset *atomic.Int64) *rig {
	t.Helper()
	begun := time.Now()
	read := func() (time.Time, time.Duration) {
		now := time.Now()
		return now.Add(time.Duration(offset.Load())), now.Sub(begun)
	}
	never := func() bool { return false }
	return launchWith(t, cfg, Options{clock: clock.Options{Read: read, Synchronised: never}}).begin()
}

// clockState waits until the health gate has seen the clock in a state.
func (r *rig) clockState(state string) {
	r.t.Helper()
	failing := map[string]float64{clock.Ahead: 1, clock.Behind: 1}[state]
	r.await("the clock to be "+state, func() bool {
		return r.metric("readyz_degraded", "service", "node", "cause", keyClock) == failing &&
			strings.Contains(r.log.String(), `"state":"`+state+`"`)
	})
}

// about reports whether two numbers of seconds are the same but for the steering of the machine's
// clock.
func about(a, b float64) bool { return math.Abs(a-b) < 0.5 }

// While the wall clock is ahead every view of the node says so, and nothing is refused. Once it is
// right nothing has happened.
func TestWallClockAhead(t *testing.T) {
	t.Parallel()
	cfg, _ := devConfig(t)
	var shift atomic.Int64
	r := unsynced(t, cfg, &shift)
	c := r.socket()
	pay := func(key string) walletapi.Posted {
		t.Helper()
		done, err := c.Transfer(t.Context(), key,
			walletapi.Transfer{From: "alice", To: "bob", Asset: "ron", AmountMinor: "1"})
		must(t, err)
		return done
	}
	first := pay("rent")
	shift.Store(int64(26 * time.Hour))
	r.clockState(clock.Ahead)

	const ahead = "the wall clock is 1d2h ahead of the node's clock"
	told, err := c.Clock(t.Context())
	if err != nil || told.State != clock.Ahead || !about(told.OffsetS, 93600) || told.Synchronised ||
		!strings.HasPrefix(told.Message, ahead) || !strings.Contains(told.Next, "ronbox clock accept") ||
		told.SettlesAt.Before(told.Reading) || told.Since.After(told.Reading) {
		t.Errorf("%+v, %v", told, err)
	}
	ready, err := c.Ready(t.Context(), "", "")
	if err != nil || !ready.WriteReady || !slices.Contains(ready.Missing, "node."+keyClock) {
		t.Errorf("readyz: %+v, %v", ready, err)
	}
	if f := r.finding("node_clock"); f.State != "warn" || !strings.HasPrefix(f.Message, ahead) || f.Next == "" {
		t.Errorf("doctor: %+v", f)
	}
	if by := r.metric("clock_offset_seconds"); !about(by, 93600) {
		t.Errorf("clock_offset_seconds %v", by)
	}
	if again := pay("rent"); !again.Replayed || again.Receipt.TxID != first.Receipt.TxID {
		t.Errorf("the key is forgotten: %+v", again)
	}
	pay("food")

	shift.Store(0)
	r.clockState(clock.OK)
	if by := r.metric("clock_steps_total"); by != 0 {
		t.Errorf("%v steps", by)
	}
	if lines := strings.Count(r.log.String(), "clock_changed"); lines != 2 {
		t.Errorf("%d lines of the log for two changes", lines)
	}
	_, err = c.AcceptClock(t.Context())
	if p := problem(t, err); p.Status != http.StatusConflict || p.Details["cause"] != "not_ahead" {
		t.Errorf("%+v", p)
	}
	r.halt()
}

// An accepted wall clock is the reading at once. Holds that are over end, and the audit chain says
// who accepted it. It cannot go back.
func TestAcceptClock(t *testing.T) {
	t.Parallel()
	cfg, _ := devConfig(t)
	var shift atomic.Int64
	r := unsynced(t, cfg, &shift)
	c := r.socket()
	for key, hours := range map[string]uint64{"short": 2, "long": 72} {
		_, err := c.Hold(t.Context(), key, walletapi.Hold{
			From: "alice", To: "bob", Asset: "ron", AmountMinor: "5", ExpiresInS: 3600 * hours,
		})
		must(t, err)
	}
	shift.Store(int64(26 * time.Hour))
	r.clockState(clock.Ahead)
	want := nodeapi.ClockExpiry{Keys: 3, Holds: 1} // and the key of init
	if now, err := c.Clock(t.Context()); err != nil || now.Expires == nil || *now.Expires != want {
		t.Errorf("%+v, %v", now.Expires, err)
	}
	done, err := c.AcceptClock(t.Context())
	if err != nil || !about(done.ByS, 93600) || done.Expires == nil || *done.Expires != want ||
		time.Until(done.Reading) < 25*time.Hour {
		t.Errorf("%+v, %v", done, err)
	}
	if ready, err := c.Ready(t.Context(), "", ""); err != nil || slices.Contains(ready.Missing, "node."+keyClock) {
		t.Errorf("readyz: %+v, %v", ready, err)
	}
	r.clockState(clock.OK)
	if by := r.metric("clock_steps_total", "direction", "forward"); by != 1 {
		t.Errorf("%v steps", by)
	}
	r.await("the hold to expire", func() bool { return r.metric("holds_open") == 1 })
	page, err := r.Audit(t.Context(), 1, 1000)
	must(t, err)
	row := page.Rows[slices.IndexFunc(page.Rows, func(a nodeapi.AuditRow) bool { return a.Event == "clock.accepted" })]
	if !strings.HasPrefix(row.Principal, "uid:") || row.Detail["by"] != "1d2h" ||
		row.Detail["keys"] != "3" || row.Detail["holds"] != "1" {
		t.Errorf("%+v", row)
	}

	shift.Store(0)
	r.clockState(clock.Behind)
	if now, err := c.Clock(t.Context()); err != nil || now.State != clock.Behind || !now.SettlesAt.IsZero() {
		t.Errorf("%+v, %v", now, err)
	}
	r.halt()
}

// An init under a clock before the commit time of the binary begins at that time, and says that its
// token may be out of date.
func TestInitBeforeTheBinary(t *testing.T) {
	cfg := newConfig(t)
	made := time.Now().Add(20 * 24 * time.Hour)
	res, err := Init(t.Context(), cfg, initdir.Options{Made: made})
	if err != nil || !strings.Contains(res.Clock, "ronbox token mint") {
		t.Fatalf("%+v, %v", res, err)
	}
	file, err := store.OpenReader(cfg.Path(config.DatabaseName))
	must(t, err)
	if at := time.Unix(0, file.Info().At); at.Before(made) || at.After(made.Add(time.Hour)) {
		t.Errorf("the file is of %s, the binary of %s", at, made)
	}
	must(t, file.Close())
}
