package unit

import (
	"encoding"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDurationText(t *testing.T) {
	for _, tt := range []struct {
		in    string
		value time.Duration
		out   string
	}{
		{"0", 0, "0s"}, {"0s", 0, "0s"}, {"250ms", 250 * time.Millisecond, "250ms"}, {"5s", 5 * time.Second, "5s"},
		{"10m", 10 * time.Minute, "10m"}, {"72h", 72 * time.Hour, "3d"}, {"30d", 720 * time.Hour, "30d"}, {"90s", 90 * time.Second, "90s"},
		{"1m30s", 90 * time.Second, "90s"}, {"1h1ms", time.Hour + time.Millisecond, "1h1ms"}, {"1000ms", time.Second, "1s"},
		{"1500us", 1500 * time.Microsecond, "1500us"}, {"7ns", 7, "7ns"}, {"9223372036854775807ns", math.MaxInt64, "9223372036854775807ns"},
	} {
		d, err := ParseDuration(tt.in)
		if err != nil || d.D() != tt.value {
			t.Errorf("ParseDuration(%q) = %d, %v; want %d", tt.in, d, err, tt.value)
		}
		if d.String() != tt.out {
			t.Errorf("%q prints as %q, want %q", tt.in, d, tt.out)
		}
	}
}

func TestSizeText(t *testing.T) {
	for _, tt := range []struct {
		in    string
		value int64
		out   string
	}{
		{"0", 0, "0B"}, {"512B", 512, "512B"}, {"1KiB", 1024, "1KiB"}, {"8GiB", 8 << 30, "8GiB"}, {"1MB", 1e6, "1MB"}, {"1000KB", 1e6, "1MB"},
		{"1024KiB", 1 << 20, "1MiB"}, {"1500KB", 1500000, "1500KB"}, {"4097B", 4097, "4097B"}, {"2TiB", 2 << 40, "2TiB"}, {"128000B", 128000, "128KB"},
	} {
		z, err := ParseSize(tt.in)
		if err != nil || z.Bytes() != tt.value || z.String() != tt.out {
			t.Errorf("ParseSize(%q) = %d, %v, printed %q; want %d, %q", tt.in, z, err, z, tt.value, tt.out)
		}
	}
}

func TestRefused(t *testing.T) {
	var d Duration
	var z Size
	for _, tt := range []struct {
		into encoding.TextUnmarshaler
		bad  string
	}{
		{&d, "|5|s|-5s|+5s|5 s|5S|1.5s|1s1s|30s1m|5s |9223372036854775808ns|106752d|99999999999999999999s|1d9223372036854775807ns|5sec"},
		{&z, "|5|B|-1B|+1B|1 KiB|1kib|1k|1.5KiB|1KiB1B|8388608TiB|9223372036854775808B|99999999999999999999B|1KiB "},
	} {
		for bad := range strings.SplitSeq(tt.bad, "|") {
			if err := tt.into.UnmarshalText([]byte(bad)); err == nil || d != 0 || z != 0 {
				t.Errorf("%T took %q: %v, %v", tt.into, bad, d, z)
			}
		}
	}
	if _, err := Duration(-1).MarshalText(); err == nil {
		t.Error("a negative duration has a text")
	}
	if _, err := Size(-1).MarshalText(); err == nil {
		t.Error("a negative size has a text")
	}
}

// What is printed is read back as the same value.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, math.MaxInt64).
			Draw(t, "n") /
			rapid.SampledFrom([]int64{1, 1000, 1e6, 1e12}).
				Draw(t, "d")
		scale := rapid.SampledFrom([]int64{1, 1000, 1024, 1e6, 1 << 20, 1e9, int64(time.Minute), int64(24 * time.Hour)}).
			Draw(t, "scale")
		n = n / scale * scale
		text, _ := Duration(n).MarshalText()
		if d, err := ParseDuration(string(text)); err != nil || d != Duration(n) {
			t.Fatalf("duration %d printed %q, came back %d, %v", n, text, d, err)
		}
		text, _ = Size(n).MarshalText()
		if z, err := ParseSize(string(text)); err != nil || z != Size(n) {
			t.Fatalf("size %d printed %q, came back %d, %v", n, text, z, err)
		}
	})
}

// The error for a value out of bounds names the bounds, and quotes a text. NaN is always out of
// bounds. An empty range is not an error.
func TestBounds(t *testing.T) {
	for want, err := range map[string]error{
		"":                                   errors.Join(Within("a", 1, 1, 3), Within("b", 3, 1, 3), Within("c", 9, 5, 4), Between("d", 0, 0, time.Second)),
		"shards = 0: must be 1..64":          Within("shards", 0, 1, 64),
		"rate = NaN: must be 0..1":           Within("rate", math.NaN(), 0, 1),
		`file = "1B": must be 1KiB..2MiB`:    Within("file", Size(1), 1<<10, 2<<20),
		`wait = "2m": must be 1s..1m`:        Between("wait", Duration(2*time.Minute), time.Second, time.Minute),
		`wait = "0s": must be 1ms..1h`:       Between("wait", 0, time.Millisecond, time.Hour),
		"burst = -1: must be 0..1000000":     Within("burst", -1, 0, 1_000_000),
		"max_bytes = 65: must be 1..64":      Within("max_bytes", int64(65), 1, 64),
		"retry.factor = 10.5: must be 1..10": Within("retry.factor", 10.5, 1, 10),
	} {
		if got := ""; err != nil {
			if got = err.Error(); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		} else if want != "" {
			t.Errorf("nothing is told, want %q", want)
		}
	}
}

func TestShell(t *testing.T) {
	got := Shell("ronbox", "--data-dir", "/srv/a b'c", "x=1:2", "", "*", "ü")
	if want := `ronbox --data-dir '/srv/a b'\''c' x=1:2 '' '*' 'ü'`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestShort(t *testing.T) {
	const day = 24 * time.Hour
	for want, d := range map[string]time.Duration{
		"0s": 0, "1ns": 1, "250ms": 250*time.Millisecond + 7, "26s": 25*time.Second + 999*time.Millisecond,
		"1m": time.Minute, "10m": 10 * time.Minute, "1m30s": 90 * time.Second, "1h": time.Hour + time.Second,
		"1d": day, "1d2h": 26*time.Hour - time.Millisecond, "30d": 30 * day, "-1h": -time.Hour, "-0s": math.MinInt64,
	} {
		if got := Short(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
