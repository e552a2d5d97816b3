package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/httpapi/wire"
	ledgerapi "ronbox/httpapi/wire/ledger"
	nodeapi "ronbox/httpapi/wire/node"
)

// The page lists the newest snapshots and says how many there are.
func TestSnapshotsOfThePage(t *testing.T) {
	s := &session{rights: rights{who: "uid:1000", uid: 1000}, form: "FORM"}
	for _, tt := range []struct {
		n, rows int
		says    string
	}{
		{0, 0, "There are no snapshots in <code>/snapshots</code>."},
		{1, 1, "All in <code>/snapshots</code>."},
		{maxRows, maxRows, "All in <code>/snapshots</code>."},
		{maxRows + 10, maxRows, "The newest 50 of 60 in <code>/snapshots</code>."},
	} {
		list := nodeapi.SnapshotList{Dir: "/snapshots"}
		for i := range tt.n {
			list.Snapshots = append(list.Snapshots, nodeapi.SnapshotInfo{
				Name: fmt.Sprintf("ronbox-%03d.db", tt.n-i), CreatedAt: noon.Add(-time.Duration(i) * time.Hour), Verified: true,
			})
		}
		body, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		node := readRecorded(t)
		a := node["/admin/v1/snapshots"]
		a.Body = string(body)
		node["/admin/v1/snapshots"] = a
		text := string(newGolden(t, node).page(t, s, "/console/operations"))
		if rows := strings.Count(text, "<code>ronbox-"); rows != tt.rows || !strings.Contains(text, tt.says) {
			t.Errorf("%d snapshots: %d rows, want %d and %q", tt.n, rows, tt.rows, tt.says)
		}
		if tt.n > 0 && !strings.Contains(text, fmt.Sprintf("<code>ronbox-%03d.db</code>", tt.n)) {
			t.Errorf("%d snapshots: the newest one is not listed", tt.n)
		}
	}
}

// The page says in one row how far the archive is, and what to do.
func TestArchiveOfThePage(t *testing.T) {
	s := &session{rights: rights{who: "uid:1000", uid: 1000}, form: "FORM"}
	const to = "file:///mnt"
	for _, tt := range []struct {
		archive nodeapi.Archive
		says    []string
	}{
		{nodeapi.Archive{State: "off"}, []string{`light good">off`, "are lost with the disk"}},
		{nodeapi.Archive{State: "ok", Target: to, Seq: 9, SentSeq: 9, BaseAt: noon},
			[]string{`light good">ok`, "command 9 of 9", "base of <time"}},
		{nodeapi.Archive{State: "ok", Target: to, LastError: "no right", Advice: "prune elsewhere"},
			[]string{`light warn">ok`, "; no right. To do: prune elsewhere"}},
		{nodeapi.Archive{State: "behind", Target: to, LagSeconds: 90.4}, []string{`light warn">behind`, "1m30s behind"}},
		{nodeapi.Archive{State: "target_changed", Target: to}, []string{`light bad">target_changed`}},
	} {
		body, err := json.Marshal(tt.archive)
		if err != nil {
			t.Fatal(err)
		}
		node := readRecorded(t)
		a := node["/admin/v1/archive"]
		a.Body = string(body)
		node["/admin/v1/archive"] = a
		text := string(newGolden(t, node).page(t, s, "/console/operations"))
		for _, want := range tt.says {
			if !strings.Contains(text, want) {
				t.Errorf("%+v: %q is missing", tt.archive, want)
			}
		}
	}
}

// The page says in one row which periods are closed, what a closing does, and why one failed.
func TestClosingsOfThePage(t *testing.T) {
	s := &session{rights: rights{who: "uid:1000", uid: 1000}, form: "FORM"}
	for _, tt := range []struct {
		closing nodeapi.LedgerClosing
		horizon ledgerapi.LedgerHorizon
		says    []string
	}{
		{
			closing: nodeapi.LedgerClosing{State: "idle"},
			says:    []string{`light good">idle</span> none</td>`},
		},
		{
			closing: nodeapi.LedgerClosing{State: "idle", DueAt: noon},
			says:    []string{"none; the next is due <time"},
		},
		{
			nodeapi.LedgerClosing{State: "dropping", Period: 3, Done: 12, Total: 5000},
			ledgerapi.LedgerHorizon{Period: 3, Seq: 9000, At: wire.Instant{Time: noon}, ReclaimBytes: 3 << 20},
			[]string{`light good">dropping</span> 3, up to record 9`, "3.0 MiB are still to leave", "; period 3: 12 of 5"},
		},
		{nodeapi.LedgerClosing{State: "failed", Error: "no such folder"}, ledgerapi.LedgerHorizon{Period: 1, Seq: 9},
			[]string{`light bad">failed</span> 1, up to record 9`, "; no such folder</td>"}},
	} {
		node := readRecorded(t)
		for target, doc := range map[string]any{
			"/admin/v1/ledger/close": tt.closing,
			"/v1/ledger/horizon":     tt.horizon,
		} {
			body, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			a := node[target]
			a.Body = string(body)
			node[target] = a
		}
		text := string(newGolden(t, node).page(t, s, "/console/operations"))
		for _, want := range tt.says {
			if !strings.Contains(text, want) {
				t.Errorf("%+v: %q is missing", tt.closing, want)
			}
		}
	}
}
