package refusal_test

import (
	"testing"

	"go.uber.org/goleak"

	"ronbox/httpapi/refusal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A row of the same cause comes before one for any cause, and one of the table before a shared one.
func TestFind(t *testing.T) {
	own := refusal.Table{
		{Reason: "timeout", Title: "own"},
		{Reason: "timeout", Cause: "queue", Title: "own of the queue"},
	}
	for _, tt := range []struct{ reason, cause, want string }{
		{"timeout", "", "own"},
		{"timeout", "queue", "own of the queue"},
		{"timeout", "slow_body", "Request too slow"},
		{"timeout", "else", "own"},
		{"busy", "else", "Queue is full"},
		{"unheard_of", "", ""},
	} {
		got := ""
		if row := own.Find(tt.reason, tt.cause); row != nil {
			got = row.Title
		}
		if got != tt.want {
			t.Errorf("%s %q: %q, want %q", tt.reason, tt.cause, got, tt.want)
		}
	}
}

func TestDetail(t *testing.T) {
	row := refusal.Row{
		Means: "The base moved.", Changed: "Nothing.", Next: "Commit {parent} first, then {other}.",
	}
	details := map[string]any{"parent": "p_1"}
	for _, tt := range []struct{ call, text, field, want string }{
		{"", "", "", "The base moved. Commit p_1 first, then OTHER."},
		{"Ask again.", "", "base", "base: The base moved. Ask again."},
		{"", "it moved", "base", "it moved"},
		{"Ask again.", "it moved", "", "it moved. Ask again."},
		{"Ask again.", "did it move?", "", "did it move? Ask again."},
	} {
		row.Call = tt.call
		if got := row.Detail(tt.text, tt.field, details); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
	row.Status = 500 // it is not plain then that nothing was changed
	if got := row.Detail("", "", nil); got != "The base moved. Nothing was changed. Ask again." {
		t.Errorf("%q", got)
	}
	row.Changed = "Nothing by this request."
	if got := row.Detail("", "", nil); got != "The base moved. Nothing was changed by this request. Ask again." {
		t.Errorf("%q", got)
	}
}

func TestExitCode(t *testing.T) {
	for _, tt := range []struct {
		row  refusal.Row
		want int
	}{
		{refusal.Row{Status: 400}, 1}, {refusal.Row{Status: 403}, 5}, {refusal.Row{Status: 503}, 6},
		{refusal.Row{Status: 503, Exit: 1}, 1},
	} {
		if got := tt.row.ExitCode(); got != tt.want {
			t.Errorf("%+v: %d, want %d", tt.row, got, tt.want)
		}
	}
}
