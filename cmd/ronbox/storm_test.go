package main

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"ronbox/httpapi/client"
)

// A storm of SIGHUPs over a file that keeps changing: no request is lost, and what is in force in the end is what stands in the file.
func TestReloadStorm(t *testing.T) {
	levels := []string{"error", "warn", "info"}
	text := func(i int) string {
		return fmt.Sprintf("server.bind = \"127.0.0.1:0\"\nlog.level = %q\nserver.max_conns = %d\n", levels[i%len(levels)], 1000+i)
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
			b.configure(t, "server.bind = ") // half written
		} else {
			b.configure(t, text(i))
		}
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	b.configure(t, text(storm))
	must(t, nil, b.args("config", "reload")...)
	var drift configDelta
	if must(t, &drift, b.args("config", "diff", "running", "--json")...); len(drift.Changes) > 0 {
		t.Errorf("in force is not what the file says: %+v", drift.Changes)
	}
	var shown shownConfig
	must(t, &shown, b.args("config", "show", "server.max_conns", "--running", "--json")...)
	if len(shown.Keys) != 1 || shown.Keys[0].Value != fmt.Sprint(1000+storm) || shown.Version < 2 || shown.Version > storm+2 {
		t.Errorf("in force: %+v", shown)
	}
	readers.await(t, 50)
	readers.off(t)
	socket.off(t)
	if n := readers.missed.Load() + socket.missed.Load(); n > 0 {
		t.Errorf("%d requests found nobody", n)
	}
	if code := p.signal(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("exit %d\n%s", code, p.stderr)
	}
}
