package rverify_test

import (
	"fmt"
	"strings"

	"ronbox/engines/rewarder/rverify"
)

const policy = `{
	"schema": "ronbox.rw.policy/1", "id": "p1", "version": "1", "tenant": "default", "asset": "ron",
	"calculus": "ronbox-calculus/1", "mode": "share", "rounding": "floor", "shortfall": "quarantine", "scale": "0",
	"metrics": {"bytes": {"num": "1", "den": "1", "row_max": "1000"}},
	"caps": {"pool_max_minor": "1000", "actor_max_minor": "0", "excess": "residual"},
	"floors": {"dust_minor": "0", "guarantee_minor": "0"},
	"funding": {"source": "protocol_pool", "account": "pool", "mode": "transfer"},
	"residual": {"mode": "retain", "account": ""}
}`

// Anyone can recompute the payouts of an epoch from its policy, its usage and its pool.
func ExampleRecompute() {
	var in rverify.Inputs
	var err error
	if in.Policy, err = rverify.ParsePolicy([]byte(policy)); err != nil {
		fmt.Println(err)
		return
	}
	usage := "actor,metric,qty\nalice,bytes,10\nbob,bytes,30\n"
	if in.Usage, err = rverify.ReadCSV(strings.NewReader(usage)); err != nil {
		fmt.Println(err)
		return
	}
	if in.Snapshot, err = in.Usage.Snapshot(&in.Policy, "2026-11", "100"); err != nil {
		fmt.Println(err)
		return
	}
	if in.Ledger, err = rverify.UnseenLedger(&in.Policy, "100"); err != nil {
		fmt.Println(err)
		return
	}
	run, err := rverify.Recompute(in)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(run.Actors, "actors get", run.Payout, "of", run.Pool)
	// Output: 2 actors get 100 of 100
}
