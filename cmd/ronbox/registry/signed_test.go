package registry

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/registry/record"
	"ronbox/httpapi/wire"
	registryapi "ronbox/httpapi/wire/registry"
)

// payloadAt is version 2 with one item, made at a time.
func payloadAt(t *testing.T, line string, at time.Time) *record.Payload {
	t.Helper()
	set := &record.SignerSet{
		Epoch: 1, Threshold: 1, ThresholdGov: 1,
		Signers: []record.Signer{newTestKey(t, 1).Signer(1)},
	}
	base := record.Base{Origin: "log.example/x", Version: 1, Signers: set}
	p, _, err := record.Complete(record.Draft{Version: 2, Put: mustItems(t, line)}.Bytes(), base, at)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A key signs one change for a version. It signs the same change again at any time, and a second
// change only when forced.
func TestNoteSigning(t *testing.T) {
	k := signerKey{newTestKey(t, 1), filepath.Join(t.TempDir(), "a.key")}
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	first, later, second := payloadAt(t, itemA, now), payloadAt(t, itemA, now.Add(time.Minute)), payloadAt(t, itemB,
		now)
	for _, p := range []*record.Payload{first, first, later} {
		if err := k.noteSigning(p, false); err != nil {
			t.Fatalf("the same change: %v", err)
		}
	}
	err := noteSignings([]signerKey{k}, second, false)
	if !errors.Is(err, errSignedBefore) || cli.Classify(err).Code != registryapi.ExitDuplicate {
		t.Errorf("a second payload: %v", err)
	}
	if err := k.noteSigning(second, true); err != nil {
		t.Errorf("forced: %v", err)
	}
	raw, err := os.ReadFile(k.file + signedSuffix)
	if err != nil || strings.Count(string(raw), "\n") != 3 || !strings.Contains(string(raw), second.B3().String()) {
		t.Errorf("the file: %q, %v", raw, err)
	}
}

func TestBaseFits(t *testing.T) {
	p := payloadAt(t, itemA, time.Now())
	if err := baseFits(p, wanted(t)); err != nil {
		t.Errorf("the base: %v", err)
	}
	if err := baseFits(p, wanted(t, itemB)); err == nil {
		t.Error("another base fits")
	}
}

// The replaced descriptor follows each put, and --all shows every change.
func TestWriteChanges(t *testing.T) {
	put := mustItems(t, `{"id":"a","kind":"node","meta":{"n":2}}`, `{"id":"b","kind":"node","meta":{}}`,
		`{"id":"c","kind":"node","meta":{}}`, `{"id":"d","kind":"node","meta":{}}`)
	base := wanted(t, itemA)
	var s strings.Builder
	writeChanges(&s, put, nil, &base, sample)
	want := "  + {\"id\":\"a\",\"kind\":\"node\",\"meta\":{\"n\":2}}\n  = " + itemA + "\n"
	if !strings.HasPrefix(s.String(), want) || !strings.HasSuffix(s.String(), "  + … 1 more\n") {
		t.Errorf("%s", s.String())
	}
	s.Reset()
	writeChanges(&s, put, nil, nil, len(put))
	if strings.Count(s.String(), "\n") != 4 || strings.Contains(s.String(), "…") {
		t.Errorf("%s", s.String())
	}
}

// Each refusal of the registry has an exit code and a next step.
func TestHints(t *testing.T) {
	for _, tt := range []struct {
		reason  string
		status  int
		details map[string]any
		code    int
		next    string
	}{
		{"quorum", http.StatusUnprocessableEntity, nil, registryapi.ExitQuorum, ""},
		{"bad_approval", http.StatusUnprocessableEntity, nil, registryapi.ExitQuorum, ""},
		{"conflict", http.StatusConflict, nil, registryapi.ExitStale, ""},
		{"chain_mismatch", http.StatusConflict, nil, registryapi.ExitStale, "registry head"},
		{
			"version_skew", http.StatusConflict, map[string]any{"cause": "parent", "parent": "p_X"},
			registryapi.ExitStale, "Commit p_X first",
		},
		{"duplicate_approval", http.StatusConflict, nil, registryapi.ExitDuplicate, ""},
		{"not_found", http.StatusNotFound, nil, registryapi.ExitNotFound, ""},
		{"expired", http.StatusGone, nil, registryapi.ExitStale, "Propose again"},
		{"pending_limit", http.StatusConflict, nil, cli.ExitFailed, "registry proposals"},
		{"degraded", http.StatusServiceUnavailable, map[string]any{"cause": "no_genesis"}, cli.ExitFailed, "registry genesis"},
		{"degraded", http.StatusServiceUnavailable, map[string]any{"cause": "rollback_detected"}, cli.ExitFailed, "highwater show"},
	} {
		p := &wire.Problem{Service: "registry", Status: tt.status, Reason: tt.reason, Details: tt.details}
		got := cli.Classify(p)
		if got.Code != tt.code || !strings.Contains(got.Next, tt.next) {
			t.Errorf("%s: exit %d, %q; want %d, %q", tt.reason, got.Code, got.Next, tt.code, tt.next)
		}
	}
}

// The default lets a majority change the signers, so that one lost key does not end the log.
func TestGenesisThresholds(t *testing.T) {
	for _, tt := range []struct{ n, threshold, gov, wantM, wantGov int }{
		{5, 3, 0, 3, 3}, {5, 2, 0, 2, 3}, {5, 4, 0, 4, 4}, {3, 0, 0, 3, 3}, {1, 0, 0, 1, 1}, {4, 1, 4, 1, 4},
	} {
		f := genesisFlags{setFlags: setFlags{threshold: tt.threshold, thresholdGov: tt.gov}}
		for i := range tt.n {
			k := newTestKey(t, byte(i+1))
			f.add = append(f.add, k.SignerID+"="+k.Public())
		}
		set, err := app{}.firstSigners(f)
		if err != nil || set.Threshold != tt.wantM || set.ThresholdGov != tt.wantGov {
			t.Errorf("%+v: %d, %d, %v", tt, set.Threshold, set.ThresholdGov, err)
		}
	}
}
