package ledger

import (
	"errors"
	"testing"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/store"
	"ronbox/store/storetest"
)

// lateBug is a command that panics as it hands its records over: what became of its ops is known by then, and does not count.
type lateBug struct{ *post }

func (lateBug) Kind() string { return "ledger.bug/1" }

func (c lateBug) Apply(r store.Reader, at store.Stamp, _ *store.Writes) (*posted, error) {
	return c.post.Apply(r, at, nil)
}

// unmerged is a command whose group fails before it is merged.
type unmerged struct{ *post }

func (unmerged) Kind() string { return "ledger.bug/2" }

func (c unmerged) Apply(r store.Reader, at store.Stamp, w *store.Writes) (*posted, error) {
	if _, err := c.post.Apply(r, at, w); err != nil {
		return nil, err
	}
	return nil, errors.New("not merged")
}

func issueOf(n, nonce uint64) draft {
	return draft{ops: []Op{{Code: record.OpIssue, To: "a", Asset: "ron", Amount: engines.AmountOf(0, n), Nonce: nonce}}}
}

// A ticket tells of an outcome only if the file has it, or if it was judged on what the file has.
func TestTicketEndings(t *testing.T) {
	good, gap := issueOf(1, 1), issueOf(1, 9)
	for _, tt := range []struct {
		name   string
		others int // commands of the group that are merged
		wrap   func(*post) store.Command[*posted]
		d      draft
		commit bool
		stands bool
	}{
		{"merged and synced", 1, nil, good, true, true},
		{"merged and taken back", 1, nil, good, false, false},
		{"refused beside others and synced", 1, nil, gap, true, true},
		{"refused beside others and taken back", 1, nil, gap, false, false},
		{"refused alone", 0, nil, gap, false, true},
		{"panicked at its end, the group synced", 1, func(c *post) store.Command[*posted] { return lateBug{c} }, good, true, false},
		{"panicked at its end, alone", 0, func(c *post) store.Command[*posted] { return lateBug{c} }, good, false, false},
		{"not merged, alone", 0, func(c *post) store.Command[*posted] { return unmerged{c} }, good, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t)
			do := func(d draft) *post {
				t.Helper()
				c := d.command()
				c.ticket = new(ticket)
				if _, err := storetest.Do(s.tx, store.Command[*posted](c)); err != nil && !errors.As(err, new(refusal)) {
					t.Fatal(err)
				}
				return c
			}
			s.b.Begin()
			do(draft{ops: []Op{{Code: record.OpAsset, Asset: "ron"}}})
			s.end()
			s.b.Begin()
			for range tt.others {
				do(draft{ops: []Op{{Code: record.OpFlags, From: "b", Set: record.NoDebit}}})
			}
			c := tt.d.command()
			c.ticket = new(ticket)
			var cmd store.Command[*posted] = c
			if tt.wrap != nil {
				cmd = tt.wrap(c)
			}
			_, _ = storetest.Do(s.tx, cmd)
			if _, over := c.ticket.outcome(); over {
				t.Fatal("it has ended before its group")
			}
			if tt.commit {
				s.end()
			} else {
				s.b.arena = arena{}
				s.b.Aborted()
			}
			out, over := c.ticket.outcome()
			if !over {
				t.Fatal("it has not ended with its group")
			}
			if stands := out != nil; stands != tt.stands {
				t.Errorf("it tells of an outcome: %v, want %v", stands, tt.stands)
			}
		})
	}
}
