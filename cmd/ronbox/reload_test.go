package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ronbox/cmd/ronbox/cli"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	nodeapi "ronbox/httpapi/wire/node"
	registryapi "ronbox/httpapi/wire/registry"
)

// load is a group of readers that send requests until they are stopped. A request counts as torn if
// its answer was lost, and as missed if the connection was refused.
type load struct {
	done, torn, missed atomic.Int64
	wg                 sync.WaitGroup
	stop               context.CancelFunc
	failure            atomic.Pointer[error]
}

// press reads HEAD repeatedly, with one client per reader. where returns a client for the current
// address of the node.
func press(t *testing.T, readers int, where func() (*client.Client, error)) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{stop: cancel}
	for range readers {
		l.wg.Go(func() { l.read(ctx, where) })
	}
	t.Cleanup(func() { cancel(); l.wg.Wait() })
	l.await(t, 50)
	return l
}

func (l *load) read(ctx context.Context, where func() (*client.Client, error)) {
	for ctx.Err() == nil {
		c, err := where()
		if err != nil {
			l.missed.Add(1)
			continue
		}
		for err == nil && ctx.Err() == nil {
			// a read that the test interrupts would count as torn
			_, err = registryapi.NewClient(c).Head(context.WithoutCancel(ctx))
			if p, told := errors.AsType[*wire.Problem](err); told && p.Reason == "rate_limit" {
				err = nil // rate limiting is a valid answer: readers send as fast as they can
			}
			if err == nil {
				l.done.Add(1)
			}
		}
		c.Close()
		switch {
		case errors.Is(err, client.ErrNotReachable):
			l.missed.Add(1)
		case err != nil:
			l.torn.Add(1)
			l.failure.Store(&err)
		}
	}
}

// await waits until the given number of further requests is answered.
func (l *load) await(t *testing.T, more int64) {
	t.Helper()
	from := l.done.Load()
	until(t, "requests go on", func() bool { return l.done.Load() >= from+more })
}

func (l *load) off(t *testing.T) {
	t.Helper()
	l.stop()
	l.wg.Wait()
	if l.torn.Load() > 0 {
		t.Errorf("%d of %d requests were left without an answer, such as: %v", l.torn.Load(), l.done.Load(),
			*l.failure.Load())
	}
	t.Logf("%d requests answered, %d found the old address closed", l.done.Load(), l.missed.Load())
}

// until polls a condition that depends on another process.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// fileBox is a box with its settings in the configuration file instead of the environment, so that
// a reload reads them.
func fileBox(t *testing.T, text string) *box {
	t.Helper()
	b := newBox(t)
	b.env = slices.DeleteFunc(
		b.env,
		func(e string) bool { return strings.HasPrefix(e, "RONBOX_") && !slices.Contains(patient, e) },
	)
	b.configure(t, text)
	return b
}

// configure replaces the settings of the test, and keeps the settings that every box has.
func (b *box) configure(t testing.TB, text string) {
	t.Helper()
	file := filepath.Join(b.dir, "ronbox.toml")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	origin := regexp.MustCompile(`(?m)^origin *= *"[^"]*"`).FindString(string(raw))
	if origin == "" {
		t.Fatalf("no origin in\n%s", raw)
	}
	if err := os.WriteFile(file, []byte(text+"\n[registry]\n"+origin+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// url returns the TCP address of the node.
func (b *box) url(t testing.TB) string {
	t.Helper()
	s, err := b.client(t).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s.URL
}

func (b *box) configVersion(t testing.TB) uint64 {
	t.Helper()
	c, err := b.client(t).Config(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c.Version
}

// SIGHUP moves a node to another address and another log level, and every request that was sent is
// answered.
func TestHangupMovesTheNodeUnderLoad(t *testing.T) {
	skipRaceOnly(t)
	b := fileBox(t, "server.bind = \"127.0.0.1:0\"\nlog.level = \"warn\"\n")
	p := b.start(t)
	admin := b.client(t)
	where := func() (*client.Client, error) {
		s, err := admin.Status(context.WithoutCancel(t.Context()))
		if err != nil {
			return nil, err
		}
		return client.New(client.Options{URL: s.URL})
	}
	tcp := press(t, 4, where)
	socket := press(t, 2, func() (*client.Client, error) {
		return client.New(client.Options{Socket: filepath.Join(b.dir, "admin.sock")})
	})
	before := b.url(t)
	for i, want := range []struct{ bind, level string }{{"127.0.0.2:0", "error"}, {"127.0.0.1:0", "info"}} {
		b.configure(t, fmt.Sprintf("server.bind = %q\nlog.level = %q\n", want.bind, want.level))
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		until(t, "a new version is in force", func() bool { return b.configVersion(t) == uint64(i)+2 })
		if now := b.url(t); now == before || !strings.Contains(now, strings.TrimSuffix(want.bind, ":0")) {
			t.Errorf("after the reload the node is at %s, before at %s", now, before)
		}
		if l, err := admin.LogLevel(t.Context()); err != nil || l.Level != want.level {
			t.Errorf("the level is %q (%v), want %q", l.Level, err, want.level)
		}
		tcp.await(t, 50)
		socket.await(t, 50)
		before = b.url(t)
	}
	tcp.off(t)
	socket.off(t)
	if socket.missed.Load() > 0 {
		t.Errorf("the socket was not there for %d requests", socket.missed.Load())
	}
	if code := p.signal(t, syscall.SIGTERM); code != cli.ExitDone {
		t.Errorf("exit %d\n%s", code, p.stderr)
	}
}

// After a reload of an invalid file, the node keeps its configuration, counts the failure, and
// accepts the next valid file.
func TestBadReloadKeepsServing(t *testing.T) {
	skipRaceOnly(t)
	good := "server.bind = \"127.0.0.1:0\"\nlog.level = \"error\"\n"
	b := fileBox(t, good)
	p := b.start(t)
	where := b.url(t)
	readers := press(t, 2, func() (*client.Client, error) { return client.New(client.Options{URL: where}) })
	for _, tt := range []struct{ doc, text string }{
		{"not TOML", "server.bind = "},
		{"an unknown key", good + "log.levle = \"info\""},
		{"out of its range", good + "server.max_conns = -1"},
		{"what needs a restart", good + "store.max_bytes = \"2GiB\""},
	} {
		b.configure(t, tt.text)
		before := failedReloads(t, where)
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		until(t, tt.doc+" is refused", func() bool { return failedReloads(t, where) > before })
		if v := b.configVersion(t); v != 1 {
			t.Errorf("%s: version %d is in force", tt.doc, v)
		}
		var problem wire.Problem
		if r := ronbox(t, b.args("config", "reload", "--json")...); r.code == cli.ExitDone {
			t.Errorf("%s: the verb says %s", tt.doc, r.stdout)
		} else if decode(t, r.stdout, &problem); problem.Detail == "" {
			t.Errorf("%s: the verb does not say why: %s", tt.doc, r.stdout)
		}
		readers.await(t, 20)
	}
	b.configure(t, strings.Replace(good, "error", "warn", 1))
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	until(t, "the good file is in force", func() bool { return b.configVersion(t) == 2 })
	if b.url(t) != where {
		t.Errorf("the node has moved from %s to %s", where, b.url(t))
	}
	readers.off(t)
	if readers.missed.Load() > 0 {
		t.Errorf("%d requests found nobody", readers.missed.Load())
	}
	if code := p.signal(t, syscall.SIGTERM); code != cli.ExitDone {
		t.Errorf("exit %d\n%s", code, p.stderr)
	}
}

var failedReload = regexp.MustCompile(`(?m)^registry_reload_fail_total\{[^}]*\} (\d+)`)

// failedReloads returns the number of failed reloads, summed over all reasons.
func failedReloads(t testing.TB, url string) (sum int) {
	t.Helper()
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range failedReload.FindAllStringSubmatch(string(raw), -1) {
		n := 0
		if _, err := fmt.Sscan(m[1], &n); err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// Many SIGHUPs while the file keeps changing: no request is lost, and the configuration in force at
// the end matches the file.
func TestReloadStorm(t *testing.T) {
	skipRaceOnly(t)
	levels := []string{"error", "warn", "info"}
	text := func(i int) string {
		return fmt.Sprintf("server.bind = \"127.0.0.1:0\"\nlog.level = %q\nserver.max_conns = %d\n",
			levels[i%len(levels)], 1000+i)
	}
	b := fileBox(t, text(0))
	p := b.start(t)
	where := b.url(t)
	readers := press(t, 4, func() (*client.Client, error) { return client.New(client.Options{URL: where}) })
	socket := press(t, 1, func() (*client.Client, error) {
		return client.New(client.Options{Socket: filepath.Join(b.dir, "admin.sock")})
	})
	const storm = 100
	for i := range storm {
		if i%3 == 2 {
			b.configure(t, "server.bind = ") // a partially written file
		} else {
			b.configure(t, text(i))
		}
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	b.configure(t, text(storm))
	must(t, nil, b.args("config", "reload")...)
	var drift configChanges
	if must(t, &drift, b.args("config", "diff", "running", "--json")...); len(drift.Changes) > 0 {
		t.Errorf("in force is not what the file says: %+v", drift.Changes)
	}
	var shown nodeapi.ConfigShow
	must(t, &shown, b.args("config", "show", "server.max_conns", "--running", "--json")...)
	if len(shown.Keys) != 1 || shown.Keys[0].Value != fmt.Sprint(1000+storm) || shown.Version < 2 ||
		shown.Version > storm+2 {
		t.Errorf("in force: %+v", shown)
	}
	readers.await(t, 50)
	readers.off(t)
	socket.off(t)
	if n := readers.missed.Load() + socket.missed.Load(); n > 0 {
		t.Errorf("%d requests found nobody", n)
	}
	if code := p.signal(t, syscall.SIGTERM); code != cli.ExitDone {
		t.Errorf("exit %d\n%s", code, p.stderr)
	}
}

// `config diff running` predicts a reload: it reads the file again, keeps the variables that the
// node was started with, and ignores the variables of the calling shell.
func TestDiffRunningIsWhatAReloadDoes(t *testing.T) {
	b := newBox(t)
	b.start(t) // with a bind address and a log level in its environment
	t.Setenv("RONBOX_REGISTRY__LIMITS__RPS", "7")
	changes := func() []string {
		var d configChanges
		must(t, &d, b.args("config", "diff", "running", "--json")...)
		out := []string{}
		for _, c := range d.Changes {
			out = append(out, c.Key+" "+c.From+" "+c.To)
		}
		return out
	}
	if got := changes(); len(got) != 0 {
		t.Errorf("nothing was changed, and a reload would change %q", got)
	}
	file := filepath.Join(b.dir, "ronbox.toml")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.Replace(raw, []byte("#openmetrics = false"), []byte("openmetrics = true"), 1),
		0o600); err != nil {
		t.Fatal(err)
	}
	if got := changes(); len(got) != 1 || got[0] != "metrics.openmetrics false true" {
		t.Errorf("changes = %q", got)
	}
}
