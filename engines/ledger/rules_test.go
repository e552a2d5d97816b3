package ledger

import (
	"testing"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
)

// An op is accepted at the exact deadline set by its caller.
func TestLastMoment(t *testing.T) {
	for _, tt := range []struct {
		until int64
		late  bool
	}{{0, false}, {4, true}, {5, false}, {6, false}} {
		m := move{code: record.OpFlags, at: 5, until: tt.until}
		if r := m.judge(); (r != nil && r.Code == record.Expired) != tt.late {
			t.Errorf("until %d, at 5: %v", tt.until, r)
		}
		x := decider{at: 5}
		if r := x.late(&Op{ValidUntil: tt.until}); (r != nil) != tt.late {
			t.Errorf("until %d, at 5, of an account: %v", tt.until, r)
		}
	}
}

// The limit of a receiver applies even if the resulting balance overflows.
func TestTotalOverflows(t *testing.T) {
	most := engines.AmountOf(1<<64-1, 1<<64-1)
	below, _ := most.Sub(engines.AmountOf(0, 5))
	payer := record.State{CreditsPosted: engines.AmountOf(0, 10)}
	receiver := record.State{CreditsPosted: below, CreditsHeld: engines.AmountOf(0, 3)}
	m := move{
		code:   record.OpTransfer,
		at:     5,
		asset:  1,
		nonce:  1,
		amount: engines.AmountOf(0, 4),
		limits: &Limits{AccountTotal: most},
		from:   side{account: new(tables.Account), state: &payer},
		to:     side{account: new(tables.Account), state: &receiver},
	}
	if r := m.judge(); r == nil || r.Code != record.LimitTotal {
		t.Errorf("%v, want %v", r, record.LimitTotal)
	}
}

// Burnt amounts return to the issuance account, which has no receiver limit.
func TestIssuerHasNoLimit(t *testing.T) {
	payer, issuer := record.State{CreditsPosted: engines.AmountOf(0, 100)}, record.State{
		DebitsPosted: engines.AmountOf(0, 100),
	}
	m := move{
		code:   record.OpBurn,
		at:     5,
		asset:  1,
		nonce:  1,
		amount: engines.AmountOf(0, 50),
		limits: &Limits{AccountTotal: engines.AmountOf(0, 1)},
		from:   side{account: new(tables.Account), state: &payer},
		to:     side{account: new(tables.Account), state: &issuer, issues: true},
	}
	if r := m.judge(); r != nil {
		t.Errorf("a burn: %v", r)
	}
}

// If a flag forbids an op, the refusal names the party with that flag.
func TestLockedSideIsNamed(t *testing.T) {
	for flag, want := range map[record.Flags][2]string{
		record.Frozen: {"from", "to"}, record.Closed: {"from", "to"}, record.NoDebit: {"from", ""}, record.NoCredit: {"", "to"},
	} {
		for i, party := range want {
			m := move{code: record.OpTransfer, asset: 1, from: side0(), to: side0()}
			[]side{m.from, m.to}[i].account.Flags = flag
			got := ""
			if r := m.judgeParties(); r != nil {
				got = r.Party
			}
			if got != party {
				t.Errorf("%s of side %d: %q, want %q", flag, i, got, party)
			}
		}
	}
}

func side0() side { return side{account: &tables.Account{}, state: &record.State{}} }
