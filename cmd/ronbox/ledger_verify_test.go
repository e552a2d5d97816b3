package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ronbox/engines/ledger/lverify"
	"ronbox/httpapi/wire"
)

// A file that somebody names by mistake is told to be what it is; a database that is damaged stays one.
func TestVerifyOfWhatIsNoLedger(t *testing.T) {
	b := newBox(t)
	whole, err := os.ReadFile(filepath.Join(b.dir, "ronbox.db"))
	if err != nil {
		t.Fatal(err)
	}
	second := append(make([]byte, smallestPage), whole[smallestPage:]...) // its first page is gone
	torn := append([]byte(nil), whole...)
	copy(torn[smallestPage+metaMagicAt:], "xxxx")
	copy(torn[metaMagicAt+8:], "xxxx")
	for _, tt := range []struct {
		doc, text, want, not string
		code                 int
	}{
		{"text", "hello\n", `begins with "hello\n"`, "db restore", exitFailed},
		{"nothing", "", "it is empty", "db restore", exitFailed},
		{"zeros", strings.Repeat("\x00", 1<<17), "neither a database nor an export", "db restore", exitFailed},
		{"a list", "[1]", `begins with "[1]"`, "db restore", exitFailed},
		{"a database", string(whole), "", "neither", exitDone},
		{"one without its first page", string(second), "", "neither", exitDone},
		{"one with torn pages", string(torn), "damaged", "neither", exitCorrupt},
		{"an export that is none", "{}\n", "", "neither", exitBad},
	} {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := cli(t, "ledger", "verify", path); r.code != tt.code || !strings.Contains(r.stderr, tt.want) || strings.Contains(r.stderr, tt.not) {
			t.Errorf("%s: exit %d, %s%s", tt.doc, r.code, r.stdout, r.stderr)
		}
	}
}

// Whoever checks a ledger is told what to do next, up to the start that ends safe mode.
func TestWhatFollowsACheck(t *testing.T) {
	sound, part := lverify.Report{OK: true, Whole: true}, lverify.Report{OK: true}
	bad := func(where string) lverify.Report {
		return lverify.Report{Whole: true, Findings: []lverify.Finding{{Where: where}}}
	}
	both := lverify.Report{Whole: true, Findings: []lverify.Finding{{Where: "state", Seq: 15}, {Where: "sums"}}} // as of one balance that is wrong
	for _, tt := range []struct {
		doc  ledgerDoc
		want string
	}{
		{ledgerDoc{Report: sound}, ""},
		{ledgerDoc{Report: sound, SafeMode: "x"}, "start the node"},
		{ledgerDoc{Report: part, SafeMode: "x"}, "without --from"},
		{ledgerDoc{Report: bad("journal")}, "restore a snapshot"},
		{ledgerDoc{Report: bad("states"), SafeMode: "x"}, "ledger rebuild"},
		{ledgerDoc{Report: bad("sums")}, "restore a snapshot"},
		{ledgerDoc{Report: both}, "ledger rebuild"},
		{ledgerDoc{Report: bad("journal"), export: true}, "export it again"},
	} {
		if got := tt.doc.next(); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%+v: %q", tt.doc, got)
		}
	}
}

// A ledger in safe mode is not waited for: a person has to see to it.
func TestSafeModeIsNotWaitedFor(t *testing.T) {
	p := &wire.Problem{Status: 503, Code: "UPSTREAM_UNAVAILABLE", Reason: "upstream", Retryable: true, Details: map[string]any{"outcome": "none"}}
	if !heals(p) {
		t.Error("a ledger that does not answer is waited for")
	}
	if p.Details["cause"] = causeSafeMode; heals(p) {
		t.Error("safe mode is waited for")
	}
}
