package obs

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"
	"pgregory.net/rapid"
)

func TestLogConfig(t *testing.T) {
	if err := DefaultLogConfig().Validate(); err != nil {
		t.Error(err)
	}
	err := LogConfig{Format: "xml", Level: "loud"}.Validate()
	if err == nil || !strings.Contains(err.Error(), "log.format") || !strings.Contains(err.Error(), "log.level") {
		t.Errorf("not all faults at once: %v", err)
	}
}

// logged is the output of one use of a logger made from cfg.
func logged(cfg LogConfig, use func(hclog.Logger)) string {
	var out bytes.Buffer
	use(NewControl(cfg, &out).Logger())
	return out.String()
}

func TestJSONLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := logged(DefaultLogConfig(), func(l hclog.Logger) {
			l.Named("registry").
				Named("pipeline").
				With("corr_id", "01J").
				Info("committed", "version", uint64(9), "latency_ms", 1.5,
					"replayed", false, "err", errors.New("none \"yet\"\n"), "at", start, "took", 3*time.Millisecond, "hash", []byte{1, 0xab}, "nothing", nil)
		})
		want := `{"ts":"2000-01-01T00:00:00.000Z","level":"info","service":"registry","part":"pipeline","event":"committed","corr_id":"01J",` +
			`"version":9,"latency_ms":1.5,"replayed":false,"err":"none \"yet\"\n","at":"2026-05-01T12:00:00Z","took":"3ms","hash":"01ab","nothing":null}` + "\n"
		if got != want {
			t.Errorf("got  %swant %s", got, want)
		}
	})
}

// The format auto is text on a terminal, and JSON in a file, a pipe or a buffer.
func TestFormatAuto(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = terminal.Close() }() // nothing was written
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // nothing was written
	for out, want := range map[io.Writer]bool{
		terminal: true, file: false, new(bytes.Buffer): false, NewRing(terminal, NewMetrics()): true,
		NewRing(file, NewMetrics()): false,
	} {
		if got := onTerminal(out); got != want {
			t.Errorf("%T: on a terminal %t, want %t", out, got, want)
		}
	}
	var out bytes.Buffer
	c := NewControl(DefaultLogConfig(), &out)
	c.Logger().Info("first")
	c.terminal = true
	c.Set(DefaultLogConfig())
	c.Logger().Info("second")
	c.Set(LogConfig{Format: "json", Level: "info"})
	c.Logger().Info("third")
	lines := strings.Split(out.String(), "\n")
	if lines[0][0] != '{' || lines[1][0] == '{' || lines[2][0] != '{' {
		t.Errorf("lines: %q", lines)
	}
}

func TestTextLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := logged(LogConfig{Format: "text", Level: "debug"}, func(l hclog.Logger) {
			l.Named("node.http").Debug("served", "status", 200, "path", "/a b", "note", "", "token", "abc")
		})
		if want := `2000-01-01T00:00:00Z DEBUG node: served part=http status=200 path="/a b" note="" token=***` + "\n"; got != want {
			t.Errorf("got  %swant %s", got, want)
		}
	})
}

func TestKeys(t *testing.T) {
	got := logged(DefaultLogConfig(), func(l hclog.Logger) {
		l.With("a", 1, "b", 1).
			Named("node").
			Info("x", "a", 2, "service", "wallet", "ts", 0, "level", 0, "event", 0, 7, "seven", "last")
	})
	want := `"service":"wallet","event":"x","a":2,"b":1,"ts_":0,"level_":0,"event_":0,"7":"seven","extra":"last"}`
	if !strings.Contains(got, want) {
		t.Errorf("got %s, want … %s", got, want)
	}
}

func TestLevels(t *testing.T) {
	for level, want := range map[string]int{"trace": 5, "debug": 4, "info": 3, "warn": 2, "error": 1, "off": 0, "nonsense": 3} {
		var out bytes.Buffer
		c := NewControl(LogConfig{Format: "json", Level: level}, &out)
		sub := c.Logger().Named("node")
		for _, at := range []hclog.Level{hclog.Trace, hclog.Debug, hclog.Info, hclog.Warn, hclog.Error} {
			sub.Log(at, "x")
		}
		if got := strings.Count(out.String(), "\n"); got != want || sub.IsDebug() != (want >= 4) {
			t.Errorf("%s: %d lines, want %d", level, got, want)
		}
		if err := c.SetLevel("trace", ""); err != nil {
			t.Error(err)
		}
		out.Reset()
		if sub.Trace("x"); out.Len() == 0 {
			t.Errorf("%s: SetLevel did not reach the sub-logger", level)
		}
	}
}

func TestSecretsNeverShow(t *testing.T) {
	const secret = "hunter2"
	for _, format := range []string{"json", "text"} {
		got := logged(LogConfig{Format: format, Level: "trace"}, func(l hclog.Logger) {
			for _, key := range []string{
				"authorization", "Authorization", "cookie", "set-cookie", "token", "tokens", "node_token", "macaroon", "secret", "secret_value", "key",
				"api_key", "private.key", "salt", "body", "request_body", "password", "passphrase", "credentials", "bearer", "jwt", "seed",
			} {
				l.Info("by key", key, secret)
				l.With(key, secret).Info("by key", "n", 1)
				l.Info("by key", key, []byte(secret), key, errors.New(secret))
			}
		})
		if strings.Contains(got, secret) || strings.Contains(got, "68756e74657232") {
			t.Errorf("%s shows the secret:\n%s", format, got)
		}
	}
}

// What is only about a secret is shown.
func TestHarmlessKeys(t *testing.T) {
	got := logged(DefaultLogConfig(), func(l hclog.Logger) {
		for _, key := range []string{"key_hint", "token_id", "token_file", "body_bytes", "kid", "tid", "monkey", "keyed", "bodyguard", "author"} {
			l.Info("x", key, "shown")
		}
	})
	if strings.Contains(got, hidden) || strings.Count(got, "shown") != 10 {
		t.Errorf("hidden for no reason:\n%s", got)
	}
}

type bomb struct{}

func (bomb) Error() string { panic("boom") }

type nilStringer struct{ s *string }

func (n *nilStringer) String() string { return *n.s }

func TestValuesCannotPanic(t *testing.T) {
	got := logged(DefaultLogConfig(), func(l hclog.Logger) {
		l.Info("x", "a", bomb{}, "b", (*nilStringer)(nil), "c", make(chan struct{}), "d", func() {}, "after", true)
	})
	var line map[string]any
	if err := json.Unmarshal([]byte(got), &line); err != nil || line["after"] != true ||
		line["a"] != "(obs.bomb panicked while printing)" {
		t.Errorf("%s: %v", got, err)
	}
}

// Every log entry is one line with a JSON object that holds the original texts.
func TestLinesAreJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		event := rapid.String().Draw(t, "event")
		value := string(rapid.SliceOf(rapid.Byte()).Draw(t, "value"))
		number := rapid.Float64().Draw(t, "number")
		got := logged(
			DefaultLogConfig(),
			func(l hclog.Logger) { l.Info(event, "value", value, "number", number, "many", []string{value, event}) },
		)
		if strings.Count(got, "\n") != 1 || strings.ContainsAny(got, "\r\u2028\u2029") || !utf8.ValidString(got) {
			t.Fatalf("not one line: %q", got)
		}
		var line struct {
			Event, Value string
			Number       any
		}
		if err := json.Unmarshal([]byte(got), &line); err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		if line.Event != event || utf8.ValidString(value) && line.Value != value {
			t.Fatalf("%q: event %q, value %q", got, event, value)
		}
		text := logged(LogConfig{Format: "text", Level: "info"}, func(l hclog.Logger) { l.Info(event, "value", value) })
		if strings.Count(text, "\n") != 1 || !utf8.ValidString(text) {
			t.Fatalf("not one line: %q", text)
		}
	})
}

func BenchmarkInfo(b *testing.B) {
	c := NewControl(DefaultLogConfig(), io.Discard)
	l := c.Logger().Named("registry")
	b.ReportAllocs()
	for b.Loop() {
		c.sink.repeats.over(time.Now(), true) // else it is held back
		logRequest(l)
	}
}

// A line that is only counted.
func BenchmarkInfoRepeated(b *testing.B) {
	l := NewControl(DefaultLogConfig(), io.Discard).Logger().Named("registry")
	b.ReportAllocs()
	for b.Loop() {
		logRequest(l)
	}
}

func logRequest(l hclog.Logger) {
	l.Info("request", "corr_id", "01JTC0000000000000000000AA", "route", "/registry/head", "status", 200, "latency_ms",
		0.21)
}

func BenchmarkDebugOff(b *testing.B) {
	l := NewControl(DefaultLogConfig(), io.Discard).Logger().Named("registry")
	b.ReportAllocs()
	for b.Loop() {
		if l.IsDebug() {
			l.Debug("request", "corr_id", "01JTC0000000000000000000AA")
		}
	}
}
