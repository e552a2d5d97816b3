package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

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
