package server

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/engines/archive/history"
	"ronbox/engines/archive/target"
	"ronbox/httpapi/client"
	walletapi "ronbox/httpapi/wire/wallet"
)

// archived gives a node an archive of its own.
func archived(t *testing.T, cfg *config.Config) {
	t.Helper()
	cfg.Archive.Target, cfg.Archive.Plaintext = "file://"+t.TempDir(), true
	cfg.Archive.Every = unit.Duration(time.Second)
}

// sent waits until the archive of a member has a command, and returns its line.
func (l *lives) sent(seq uint64) (line string) {
	l.t.Helper()
	l.await("its archive", func() bool {
		s := l.archive.Status()
		line = s.Line
		return s.State == "ok" && s.SentSeq >= seq && s.Seq >= seq
	})
	return line
}

// restored returns the state hash of a command in the archive of a member, which must be sound.
func (l *lives) restored(seq uint64, line string) string {
	t := l.t
	t.Helper()
	to, err := target.Parse(l.cfg.Archive.Target, l.cfg.Archive.Server())
	must(t, err)
	all, err := history.Open(t.Context(), to, "")
	must(t, err)
	if c, err := all.Verify(t.Context(), history.Options{}); err != nil || len(c.Findings) > 0 {
		t.Errorf("%+v, %v", c, err)
	}
	out, err := all.Restore(t.Context(), t.TempDir(), history.Moment{Seq: seq}, history.Options{Line: line})
	must(t, err)
	return out.Manifest.StateHash.String()
}

// A member archives as leader and as follower. A failover breaks no line, nor does the return of the
// member that led, and all lines lead to the same states.
func TestMembersArchive(t *testing.T) {
	t.Parallel()
	a := leadsAlone(t, func(cfg *config.Config) { archived(t, cfg) })
	joins := func() *lives {
		cfg := joined(t, a)
		archived(t, cfg)
		return a.with(live(t, cfg))
	}
	all := []*lives{a, joins(), joins()}
	healthy := func(l *lives) bool {
		s, err := l.status()
		return err == nil && s.VotersHealthy == 3
	}
	a.await("three healthy voters", func() bool { return healthy(a) })
	keys := 0
	pay := func(l *lives) (seq uint64) {
		t.Helper()
		for range 3 {
			keys++
			key := "payment-" + strconv.Itoa(keys)
			l.await(key, func() bool {
				_, err := walletapi.NewClient(l.socket().Client).Transfer(t.Context(), key, walletapi.Transfer{
					From: devAccount, To: "bob", Asset: "ron", AmountMinor: "1",
				})
				if err != nil && !client.Retryable(err) {
					t.Fatal(err)
				}
				return err == nil
			})
		}
		return l.store.Info().Seq
	}
	// every member has the line of its present life before the failover
	lines, first := map[*lives]string{}, pay(a)
	for _, l := range all {
		lines[l] = l.sent(first)
	}
	a.halt()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	later := pay(all[1])
	for _, l := range all[1:] {
		if got := l.sent(later); got != lines[l] {
			t.Errorf("after the failover the line is %s, and was %s\n%s", got, lines[l], l.log)
		}
	}
	back := a.with(live(t, a.cfg))
	back.await("three healthy voters", func() bool { return healthy(back) })
	last := pay(back)
	all[0], lines[back] = back, lines[a]
	hashes := map[string]bool{}
	for _, l := range all {
		if got := l.sent(last); got != lines[l] {
			t.Errorf("after the return the line is %s, and was %s\n%s", got, lines[l], l.log)
		}
		hashes[l.restored(last, lines[l])] = true
	}
	if len(hashes) != 1 {
		t.Errorf("command %d leads to %v", last, hashes)
	}
	for _, l := range all {
		l.stop()
	}
	for _, l := range all {
		l.halt()
		if strings.Contains(l.log.String(), "archive_foreign") {
			t.Errorf("%s", l.log)
		}
	}
}
