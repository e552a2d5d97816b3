package wire_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	"ronbox/httpapi/wire"
	nodeapi "ronbox/httpapi/wire/node"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestProblemErrorNamesReasonAndCorrelation(t *testing.T) {
	p := &wire.Problem{Title: "Queue is full", Status: 429, Reason: "busy", Detail: "propose", CorrID: "01J"}
	if got, want := p.Error(), "Queue is full (429 busy): propose [01J]"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
}

func TestProblemUnknownReadsTheOutcome(t *testing.T) {
	for _, tt := range []struct {
		details map[string]any
		want    bool
	}{{nil, false}, {map[string]any{"outcome": "none"}, false}, {map[string]any{"outcome": "unknown"}, true}} {
		if got := (&wire.Problem{Details: tt.details}).Unknown(); got != tt.want {
			t.Errorf("Unknown(%v) = %v, want %v", tt.details, got, tt.want)
		}
	}
}

func TestSnapshotLineIsProgressOrEnd(t *testing.T) {
	end := nodeapi.SnapshotLine{File: "f", Manifest: "m", B3: "b3:0", Seq: 9}
	if !end.Finished() || (nodeapi.SnapshotLine{Done: 1, Total: 2}).Finished() {
		t.Error("only a line that names the file is finished")
	}
	if got := end.Snapshot(); got != (nodeapi.Snapshot{File: "f", Manifest: "m", B3: "b3:0", Seq: 9}) {
		t.Errorf("Snapshot() = %+v", got)
	}
}

// Absent members are left out, never null: a strict reader would refuse null.
func TestNoBodyHoldsNull(t *testing.T) {
	for _, zero := range bodies() {
		body := reflect.New(reflect.TypeOf(zero)).Elem()
		for _, f := range body.Fields() {
			if f.Type() == reflect.TypeFor[jsontext.Value]() {
				f.SetBytes([]byte("{}"))
			}
		}
		b, err := json.Marshal(body.Interface())
		if err != nil {
			t.Fatalf("%T: %v", zero, err)
		}
		if strings.Contains(string(b), "null") {
			t.Errorf("%T holds null: %s", zero, b)
		}
	}
}

// An instant has three decimals even if they are zeros, and is read with any number of them.
func TestInstant(t *testing.T) {
	for in, want := range map[string]string{
		"2026-11-28T20:00:00Z":             "2026-11-28T20:00:00.000Z",
		"2026-11-28T20:00:00.5Z":           "2026-11-28T20:00:00.500Z",
		"2026-11-28T21:00:00.123999+01:00": "2026-11-28T20:00:00.123Z",
	} {
		var at struct {
			ExpiresAt wire.Instant `json:"expires_at,omitzero"`
			Never     wire.Instant `json:"never,omitzero"`
		}
		if err := json.Unmarshal([]byte(`{"expires_at":"`+in+`"}`), &at); err != nil {
			t.Fatal(err)
		}
		if out, err := json.Marshal(at); err != nil || string(out) != `{"expires_at":"`+want+`"}` {
			t.Errorf("%s: %s %v", in, out, err)
		}
	}
}
