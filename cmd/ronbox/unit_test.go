package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"ronbox/appliance/config"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

func TestExitCodes(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{
		{errors.New("anything"), 1},
		{usage("x"), 2},
		{failed(exitBad, "chain", "", "x"), 3},
		{fmt.Errorf("head: %w", client.ErrNotReachable), 4},
		{&wire.Problem{Status: 401}, 5},
		{&wire.Problem{Status: 403}, 5},
		{&wire.Problem{Status: 403, Code: "LIMITS_EXCEEDED"}, 1},
		{&wire.Problem{Status: 408}, 6},
		{&wire.Problem{Status: 429}, 6},
		{&wire.Problem{Status: 503}, 6},
		{&wire.Problem{Status: 504}, 6},
		{&wire.Problem{Status: 400}, 1},
		{&wire.Problem{Status: 409}, 1},
		{&wire.Problem{Status: 507}, 1},
		{fmt.Errorf("x: %w", client.ErrUnknown), 6},
		{fmt.Errorf("x: %w: %w", client.ErrUnknown, context.DeadlineExceeded), 6},
		{store.ErrCorrupt, 65},
		{store.ErrPoisoned, 74},
		{store.ErrLocked, 75},
		{fs.ErrPermission, 77},
		{store.ErrSchema, 78},
		{fmt.Errorf("%w: %w", client.ErrNotReachable, syscall.EACCES), 77},
		{badConfig(&config.Fault{Where: "f", Reason: "permission denied", Cause: fs.ErrPermission}), 77},
		{badConfig(&config.Fault{Where: "f", Reason: "is no file", Cause: fs.ErrNotExist}), 78},
		{context.Canceled, 130},
		{withDetails(fmt.Errorf("x: %w", client.ErrNotReachable), nil), 4},
	} {
		if got := judge(tt.err).code; got != tt.want {
			t.Errorf("judge(%v) = %d, want %d", tt.err, got, tt.want)
		}
	}
}

// Whatever the error, --json gives one problem object, and a node's own refusal comes through unchanged.
func TestErrorsAsProblems(t *testing.T) {
	p := asProblem(withDetails(fmt.Errorf("x: %w", client.ErrNotReachable), map[string]any{"file": "f"}))
	if p.Reason != "not_reachable" || p.Type != "urn:ronbox:problem:cli:not_reachable" || p.Details["file"] != "f" || p.Details["exit"] != 4 || !p.Retryable {
		t.Errorf("problem = %+v", p)
	}
	in := &wire.Problem{Type: "urn:ronbox:problem:registry:busy", Status: 429, Reason: "busy", Code: "Busy", CorrID: "c", Details: map[string]any{"m": 1}}
	out := asProblem(fmt.Errorf("propose: %w", in))
	if out.Code != "Busy" || out.CorrID != "c" || out.Details["m"] != 1 || out.Details["exit"] != 6 || len(in.Details) != 1 {
		t.Errorf("problem = %+v, its source %+v", out, in)
	}
}

func TestProgress(t *testing.T) {
	for _, tt := range []struct {
		doc  string
		tty  bool
		at   []time.Duration
		want string
	}{
		{"short work is silent", true, []time.Duration{0, 500 * time.Millisecond}, ""},
		{"a line each 10 s", false, []time.Duration{time.Second, 5 * time.Second, 10 * time.Second, 12 * time.Second},
			"copy   25 %  1.0 KiB of 4.0 KiB  102 B/s  30s left\n"},
		{"a terminal is redrawn and cleared", true, []time.Duration{2 * time.Second},
			"\r\x1b[Kcopy   25 %  1.0 KiB of 4.0 KiB  512 B/s  6s left\r\x1b[K"},
	} {
		var out bytes.Buffer
		clock := time.Unix(0, 0)
		p := &progress{w: &out, tty: tt.tty, now: func() time.Time { return clock }, unit: byteUnit}
		p.begin("copy")
		for _, d := range tt.at {
			clock = time.Unix(0, 0).Add(d)
			p.at(1024, 4096)
		}
		p.end()
		if out.String() != tt.want {
			t.Errorf("%s: %q, want %q", tt.doc, out.String(), tt.want)
		}
	}
}

// The first signal drains, the second aborts, the third leaves.
func TestSignals(t *testing.T) {
	abort, quit := make(chan struct{}), make(chan struct{})
	ctx, stop := onSignals(t.Context(), func() { close(abort) }, func() { close(quit) })
	defer stop()
	for i, told := range []<-chan struct{}{ctx.Done(), abort, quit} {
		for open := true; open; { // the next one may come before its place is taken: a person would press again
			if err := syscall.Kill(os.Getpid(), []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGINT}[i]); err != nil {
				t.Fatal(err)
			}
			select {
			case <-told:
				open = false
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
}

// Every SIGHUP asks for a reload, and none ends the process.
func TestHangups(t *testing.T) {
	asked := make(chan struct{}, 1)
	stop := onHangup(t.Context(), func() {
		select {
		case asked <- struct{}{}:
		default:
		}
	})
	defer stop()
	for range 3 {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		<-asked
	}
}

func TestUnits(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1 << 20: "1.0 MiB", 8 << 30: "8.0 GiB", 1 << 50: "1024.0 TiB"} {
		if got := byteUnit(n); got != want {
			t.Errorf("byteUnit(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestDesiredStates(t *testing.T) {
	const a, b = itemA, `{ "meta":{}, "kind":"node", "id":"b" }`
	for _, tt := range []struct{ doc, in, want string }{
		{"two and an empty line", a + "\n\n" + b + "\n", ""},
		{"no line end", a, ""},
		{"nothing", "", ""},
		{"a line that is no descriptor", a + "\n{", "f:2: "},
		{"an id twice", a + "\n" + b + "\n" + a + "\n", "f:3: a stands in line 1 already"},
		{"an endless line", a + "\n\n" + strings.Repeat(" ", maxDesired+1), "f:3: the line is longer"},
	} {
		_, err := parseDesired("f", strings.NewReader(tt.in))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: err = %v, want %q", tt.doc, err, tt.want)
		}
	}
}
