package ledger

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/ledger/lverify"
	"ronbox/httpapi/wire"
)

// The report of a check recommends the next step, including the start that ends safe mode.
func TestWhatFollowsACheck(t *testing.T) {
	sound, part := lverify.Report{OK: true, Whole: true}, lverify.Report{OK: true}
	bad := func(where string) lverify.Report {
		return lverify.Report{Whole: true, Findings: []lverify.Finding{{Where: where}}}
	}
	// A single wrong balance has these findings.
	both := lverify.Report{Whole: true, Findings: []lverify.Finding{{Where: "state", Seq: 15}, {Where: "sums"}}}
	for _, tt := range []struct {
		doc  verifyDoc
		want string
	}{
		{verifyDoc{Report: sound}, ""},
		{verifyDoc{Report: sound, SafeMode: "x"}, "start the node"},
		{verifyDoc{Report: part, SafeMode: "x"}, "without --from"},
		{verifyDoc{Report: bad("journal")}, "restore a snapshot"},
		{verifyDoc{Report: bad("states"), SafeMode: "x"}, "ledger rebuild"},
		{verifyDoc{Report: bad("sums")}, "restore a snapshot"},
		{verifyDoc{Report: bad("base")}, "restore a snapshot"},
		{verifyDoc{Report: both}, "ledger rebuild"},
		{verifyDoc{Report: bad("journal"), export: true}, "export it again"},
	} {
		if got := tt.doc.next(); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%+v: %q", tt.doc, got)
		}
	}
}

// A file is what it begins like. The database of the data folder need not look like one.
func TestKindOf(t *testing.T) {
	for text, want := range map[string]kind{
		"{}": export, magicPeriod + "x": periodFile, "....\xed\xda\x0c\xed": database,
	} {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := kindOf(path, true); got != want || err != nil {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	path := filepath.Join(t.TempDir(), "torn")
	if err := os.WriteFile(path, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := kindOf(path, true); err == nil {
		t.Error("any file is a ledger")
	}
	if got, err := kindOf(path, false); got != database || err != nil {
		t.Errorf("the database of a node: %d, %v", got, err)
	}
}

// A check of a ledger with closed periods says where it began.
func TestSoundSaysWhereItBegan(t *testing.T) {
	for periods, want := range map[uint64]string{0: "every", 1: "from record 8 on every", 7: "; 7 periods closed before"} {
		if got := Sound(periods, 8); !strings.Contains(got, want) {
			t.Errorf("%d periods: %q", periods, got)
		}
	}
}

// A verb does not wait for a ledger in safe mode, because only an operator can end it.
func TestSafeModeIsNotWaitedFor(t *testing.T) {
	p := &wire.Problem{
		Status:    503,
		Reason:    "upstream",
		Retryable: true,
		Details:   map[string]any{"outcome": "none"},
	}
	if !cli.Transient(p) {
		t.Error("a ledger that does not answer is waited for")
	}
	if p.Details["cause"] = "safe_mode"; cli.Transient(p) {
		t.Error("safe mode is waited for")
	}
	if p.Details["cause"] = "rollback_detected"; cli.Transient(p) {
		t.Error("a rollback is waited out, which only a person ends")
	}
}
