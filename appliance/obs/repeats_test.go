package obs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"pgregory.net/rapid"
)

// lines are the JSON lines of text.
func lines(t testing.TB, text string) []map[string]any {
	t.Helper()
	var out []map[string]any
	for line := range strings.Lines(text) {
		one := map[string]any{}
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out = append(out, one)
	}
	return out
}

// Ten lines of a kind are written each second, and one more counts the others. Other kinds are not
// affected.
func TestRepeatsAreSummed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := NewControl(DefaultLogConfig(), &out).Logger().Named("registry")
		for i := range 50 {
			l.Info("http.request", "route", "/registry/head", "status", 429, "n", i)
		}
		l.Info("http.request", "route", "/registry/head", "status", 200)
		l.Warn("http.request", "route", "/registry/head", "status", 429)
		l.Named("pipeline").With("service", "node").Info("http.request", "route", "/registry/head", "status", 429)
		if got := lines(t, out.String()); len(got) != 13 {
			t.Fatalf("%d lines", len(got))
		}
		out.Reset()
		time.Sleep(time.Second)
		l.Info("something else")
		got := lines(t, out.String())
		if len(got) != 2 || got[0]["repeated"] != 40.0 || got[0]["event"] != "http.request" || got[0]["route"] != "/registry/head" ||
			got[0]["status"] != 429.0 || got[0]["service"] != "registry" ||
			got[0]["level"] != "info" ||
			got[1]["event"] != "something else" {
			t.Errorf("%v", got)
		}
	})
}

// A lasting storm writes at most eleven lines per second. Its last count is written without a later
// log call.
func TestSumsShowByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipe{}
		ring := NewRing(p, nil)
		l := NewControl(DefaultLogConfig(), ring).Logger().Named("store")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- ring.Run(ctx) }()
		time.Sleep(5 * time.Second) // a ring without lines sweeps no more
		const each = 100
		for range 3 * 1000 / each {
			for range each {
				l.Warn("slow disk")
			}
			time.Sleep(each * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		written, summed, last := 0, 0, time.Time{}
		for _, one := range lines(t, p.text()) {
			if n, ok := one["repeated"].(float64); ok {
				at, err := time.Parse(time.RFC3339, one["ts"].(string))
				if err != nil || at.Sub(last) < time.Second {
					t.Errorf("a sum at %s after one at %s: %v", at, last, err)
				}
				last, summed = at, summed+int(n)
			} else {
				written++
			}
		}
		if written != 30 || written+summed != 3000 {
			t.Errorf("%d written, %d summed", written, summed)
		}
		for range 11 {
			l.Warn("last")
		}
		cancel()
		if err := <-done; err != nil || !strings.Contains(p.text(), `"event":"last","repeated":1}`) {
			t.Errorf("the last sum is missing: %v", err)
		}
	})
}

// storm is some lines of one event after a pause.
type storm struct {
	pause time.Duration
	event string
	lines int
}

var storms = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) storm {
	return storm{
		pause: time.Duration(rapid.IntRange(0, 700).Draw(t, "ms")) * time.Millisecond,
		event: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "event"), lines: rapid.IntRange(1, 25).Draw(t, "lines"),
	}
}), 1, 60)

// Every line is written or counted, and at most ten of a kind are written in its second.
func TestNothingIsLostInSums(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		all := storms.Draw(rt, "storms")
		var out bytes.Buffer
		synctest.Test(t, func(*testing.T) {
			c := NewControl(DefaultLogConfig(), &out)
			for _, s := range all {
				time.Sleep(s.pause)
				for range s.lines {
					c.Logger().Info(s.event)
				}
			}
			c.sink.sweep(time.Now(), true)
		})
		left, within := map[string]int{}, map[string][]time.Time{}
		for _, s := range all {
			left[s.event] += s.lines
		}
		for _, one := range lines(t, out.String()) {
			event := one["event"].(string)
			if n, ok := one["repeated"].(float64); ok {
				left[event] -= int(n)
				continue
			}
			left[event]--
			at, _ := time.Parse(time.RFC3339, one["ts"].(string))
			within[event] = append(within[event], at)
		}
		for event, n := range left {
			if n != 0 {
				rt.Fatalf("%d lines of %s are lost", n, event)
			}
		}
		for event, times := range within {
			for i := 2 * repeatLimit; i < len(times); i++ {
				if times[i].Sub(times[i-2*repeatLimit]) < time.Second {
					rt.Fatalf("more than %d lines of %s within a second", 2*repeatLimit, event)
				}
			}
		}
	})
}

// A table that is full does not grow: what finds no room in it is counted together, so that not
// even a flood of ever new messages is written whole.
func TestRepeatsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		c := NewControl(DefaultLogConfig(), &out)
		for i := range 3 * repeatKinds {
			c.Logger().Info(fmt.Sprintf("event %d", i))
		}
		if kinds, written := len(c.sink.repeats.by), strings.Count(out.String(), "\n"); kinds != repeatKinds+1 ||
			written != repeatKinds+repeatLimit {
			t.Errorf("%d kinds, %d lines", kinds, written)
		}
		time.Sleep(time.Second)
		c.Logger().Info("after")
		if n := len(c.sink.repeats.by); n != 1 {
			t.Errorf("%d kinds are kept after their second", n)
		}
		if want := fmt.Sprintf(
			`"event":"other","repeated":%d}`,
			2*repeatKinds-repeatLimit,
		); !strings.Contains(out.String(), want) {
			t.Errorf("no line has %s", want)
		}
	})
}

func TestControl(t *testing.T) {
	var out bytes.Buffer
	c := NewControl(DefaultLogConfig(), &out)
	store, registry := c.Logger().Named("store"), c.Logger().Named("registry").Named("pipeline")
	wrote := func(log hclog.Logger, level hclog.Level, args ...any) bool {
		out.Reset()
		log.Log(level, "x", args...)
		return out.Len() > 0
	}
	if err := c.SetLevel("debug", "registry"); err != nil {
		t.Fatal(err)
	}
	if !wrote(registry, hclog.Debug) || wrote(store, hclog.Debug) ||
		!wrote(store, hclog.Debug, "service", "registry") ||
		!registry.IsDebug() {
		t.Error("debug of registry alone")
	}
	if c.Level("registry") != "debug" || c.Level("store") != "info" || c.Level("") != "info" {
		t.Errorf("registry at %s, store at %s", c.Level("registry"), c.Level("store"))
	}
	if err := c.SetLevel("error", "registry"); err != nil || wrote(registry, hclog.Warn) || !wrote(store, hclog.Warn) {
		t.Errorf("errors of registry alone: %v", err)
	}
	if err := c.SetLevel("warn", ""); err != nil || wrote(store, hclog.Info) || !wrote(store, hclog.Warn) ||
		wrote(registry, hclog.Warn) {
		t.Errorf("all others at warn: %v", err)
	}
	if c.SetLevel("loud", "store") == nil || c.SetLevel("", "store") == nil || c.SetLevel("", "") == nil {
		t.Error("a level that is none passes")
	}
	if err := c.SetLevel("trace", "store"); err != nil {
		t.Error(err)
	}
	c.Set(DefaultLogConfig())
	if wrote(store, hclog.Debug) || !wrote(store, hclog.Info) || !wrote(registry, hclog.Info) {
		t.Error("a configuration, be it the same, leaves levels that were set by hand")
	}
	c.Set(LogConfig{Format: "text", Level: "off"})
	if wrote(store, hclog.Error) || c.Level("store") != "off" {
		t.Error("a new configuration leaves old levels")
	}
	c.Set(LogConfig{Format: "text", Level: "info"})
	if !wrote(store, hclog.Info) || !strings.Contains(out.String(), "INFO store: x") {
		t.Errorf("the format did not change: %s", out.String())
	}
}

// The stack of a panic stands in one line of its own.
func TestStackIsOneLine(t *testing.T) {
	got := logged(
		DefaultLogConfig(),
		func(l hclog.Logger) { l.Error("task panicked", "stack", "goroutine 1 [running]:\nmain.main()\n") },
	)
	if strings.Count(got, "\n") != 1 || !strings.Contains(got, `"stack":"goroutine 1 [running]:\nmain.main()\n"`) {
		t.Error(got)
	}
}
