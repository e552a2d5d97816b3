package rewarder

import (
	"context"
	"fmt"
	"strings"

	"ronbox/appliance/b3"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/rewarder"
	rewarderapi "ronbox/httpapi/wire/rewarder"
)

// exitParked is the exit code of run if payees are parked.
const exitParked = 22

// app is the command's App with the verbs of this package.
type app struct{ *cli.App }

// online returns the RunE of a verb that calls the node.
func (a app) online(run func(ctx context.Context, c rewarderapi.Client, args []string) error) cli.RunE {
	return cli.Online(a.App, rewarderapi.NewClient, run)
}

// runDoc is the output of run and recompute.
type runDoc struct {
	Epoch        string         `json:"epoch"`
	RunKey       b3.Digest      `json:"run_key"`
	Commitment   b3.Digest      `json:"commitment"`
	State        rewarder.State `json:"state"`
	Pool         string         `json:"pool_minor"`
	Requested    string         `json:"pool_requested,omitzero"` // --pool
	Payout       string         `json:"payout_minor"`
	Paid         string         `json:"paid_minor,omitzero"`
	Residual     string         `json:"residual_minor"`
	Actors       uint64         `json:"actors"`
	PaidActors   uint64         `json:"paid_actors,omitzero"`
	Transactions uint32         `json:"transactions"`
	Acked        uint32         `json:"acked,omitzero"`
	Replayed     bool           `json:"replayed"`

	Quarantine *rewarder.Quarantine `json:"quarantine,omitzero"`

	Parked      uint64            `json:"parked,omitzero"`
	ParkedMinor string            `json:"parked_minor,omitzero"`
	Payees      []rewarder.Parked `json:"parked_payees,omitzero"`
}

func runDocOf(r *rewarder.Run, payees []rewarder.Parked) runDoc {
	return runDoc{
		Epoch:        r.Epoch,
		RunKey:       r.RunKey,
		Commitment:   r.Commitment,
		State:        r.State,
		Pool:         r.PoolMinor,
		Payout:       r.PayoutMinor,
		Paid:         r.PaidMinor,
		Residual:     r.ResidualMinor,
		Actors:       r.Actors,
		PaidActors:   r.PaidActors,
		Transactions: r.Transactions,
		Acked:        r.Acked,
		Replayed:     r.Replayed,
		Quarantine:   r.Quarantine,
		Parked:       r.Parked,
		ParkedMinor:  r.ParkedMinor,
		Payees:       payees,
	}
}

func (d *runDoc) table(t cli.Table) {
	t.Row("epoch", d.Epoch)
	if d.Replayed && d.State == rewarder.Settled {
		t.Row("state", "settled: paid before, nothing moves")
	} else {
		t.Row("state", d.State)
	}
	t.Row("run key", d.RunKey)
	if d.Pool == "" {
		return // not computed yet
	}
	t.Row("commitment", d.Commitment)
	if d.Requested != "" && d.Requested != d.Pool {
		t.Row("pool", d.Pool+" of "+d.Requested+", capped by the policy (caps.pool_max_minor)")
	} else {
		t.Row("pool", d.Pool)
	}
	switch {
	case d.Paid == "": // computed without a node
		t.Row("payout", fmt.Sprintf("%s to %d actors, transactions: %d", d.Payout, d.Actors, d.Transactions))
	case d.PaidActors == d.Actors:
		t.Row("paid", fmt.Sprintf("%s to %d actors, transactions: %d", d.Paid, d.Actors, d.Transactions))
	default:
		t.Row("paid", fmt.Sprintf("%s of %s to %d of %d actors, transactions: %d of %d",
			d.Paid, d.Payout, d.PaidActors, d.Actors, d.Acked, d.Transactions))
	}
	t.Row("residual", d.Residual)
	d.trouble(t)
}

// maxNamed bounds the parked payees in a table. The JSON has up to [rewarder.MaxPage].
const maxNamed = 20

// trouble adds rows for the account that pauses a run and for parked payees.
func (d *runDoc) trouble(t cli.Table) {
	if q := d.Quarantine; q != nil {
		t.Row("quarantined", strings.TrimRight(q.Kind+": "+q.Reason+" "+q.Has+" "+q.Need, " "))
		t.Opt("account", q.Account)
	}
	if d.Parked > 0 {
		t.Row("parked", fmt.Sprintf("%d, together %s", d.Parked, d.ParkedMinor))
	}
	for i, p := range d.Payees {
		if i == maxNamed {
			t.Row("", "… and others: --json lists them")
			return
		}
		t.Row("", p.Actor+"  "+p.Amount+"  "+p.Reason)
	}
}
