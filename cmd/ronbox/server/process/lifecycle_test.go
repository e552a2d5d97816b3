package process

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"ronbox/appliance/flow"
)

var allPhases = []flow.Phase{
	flow.Booting, flow.Standby, flow.Recovering, flow.Running, flow.Degraded, flow.Draining, flow.Aborting, flow.Stopping,
	flow.Stopped, flow.Poisoned,
}

type step struct {
	phase flow.Phase
	kind  EventKind
}

type result struct {
	phase flow.Phase
	exit  int
	do    Action
}

const failCode = ExitInternal

// moves lists every pair of phase and event that changes anything, from an exit code of 0. All
// other pairs are inert.
var moves = map[step]result{
	{flow.Booting, EvOpened}:       {flow.Recovering, 0, ActRecover},
	{flow.Booting, EvEnrolled}:     {flow.Standby, 0, ActStandby},
	{flow.Booting, EvDrain}:        {flow.Stopping, 0, ActStop},
	{flow.Booting, EvAbort}:        {flow.Stopping, 0, ActStop},
	{flow.Booting, EvFailed}:       {flow.Stopping, failCode, ActStop},
	{flow.Booting, EvPoisoned}:     {flow.Poisoned, ExitStorage, ActDie},
	{flow.Standby, EvElected}:      {flow.Recovering, 0, ActRecover},
	{flow.Standby, EvDeposed}:      {flow.Stopping, 0, ActRenew},
	{flow.Standby, EvDrain}:        {flow.Stopping, 0, ActStop},
	{flow.Standby, EvAbort}:        {flow.Stopping, 0, ActStop},
	{flow.Standby, EvFailed}:       {flow.Stopping, failCode, ActStop},
	{flow.Standby, EvPoisoned}:     {flow.Poisoned, ExitStorage, ActDie},
	{flow.Recovering, EvRecovered}: {flow.Running, 0, ActServe},
	{flow.Recovering, EvDeposed}:   {flow.Stopping, 0, ActRenew},
	{flow.Recovering, EvDrain}:     {flow.Stopping, 0, ActStop},
	{flow.Recovering, EvAbort}:     {flow.Stopping, 0, ActStop},
	{flow.Recovering, EvFailed}:    {flow.Stopping, failCode, ActStop},
	{flow.Recovering, EvPoisoned}:  {flow.Poisoned, ExitStorage, ActDie},
	{flow.Running, EvDegraded}:     {flow.Degraded, 0, ActNone},
	{flow.Running, EvHealed}:       {flow.Running, 0, ActNone},
	{flow.Running, EvDeposed}:      {flow.Stopping, 0, ActRenew},
	{flow.Running, EvDrain}:        {flow.Draining, 0, ActDrain},
	{flow.Running, EvAbort}:        {flow.Aborting, ExitAborted, ActAbort},
	{flow.Running, EvFailed}:       {flow.Aborting, failCode, ActAbort},
	{flow.Running, EvPoisoned}:     {flow.Poisoned, ExitStorage, ActDie},
	{flow.Degraded, EvHealed}:      {flow.Running, 0, ActNone},
	{flow.Degraded, EvDegraded}:    {flow.Degraded, 0, ActNone},
	{flow.Degraded, EvDeposed}:     {flow.Stopping, 0, ActRenew},
	{flow.Degraded, EvDrain}:       {flow.Draining, 0, ActDrain},
	{flow.Degraded, EvAbort}:       {flow.Aborting, ExitAborted, ActAbort},
	{flow.Degraded, EvFailed}:      {flow.Aborting, failCode, ActAbort},
	{flow.Degraded, EvPoisoned}:    {flow.Poisoned, ExitStorage, ActDie},
	{flow.Draining, EvDrain}:       {flow.Aborting, ExitAborted, ActAbort},
	{flow.Draining, EvAbort}:       {flow.Aborting, ExitAborted, ActAbort},
	{flow.Draining, EvOverdue}:     {flow.Aborting, ExitAborted, ActAbort},
	{flow.Draining, EvStraggled}:   {flow.Aborting, ExitAborted, ActAbort},
	{flow.Draining, EvDrained}:     {flow.Stopping, 0, ActStop},
	{flow.Draining, EvFailed}:      {flow.Aborting, failCode, ActAbort},
	{flow.Draining, EvPoisoned}:    {flow.Poisoned, ExitStorage, ActDie},
	{flow.Aborting, EvDrain}:       {flow.Aborting, ExitAborted, ActNone},
	{flow.Aborting, EvAbort}:       {flow.Aborting, ExitAborted, ActNone},
	{flow.Aborting, EvOverdue}:     {flow.Aborting, ExitAborted, ActNone},
	{flow.Aborting, EvStraggled}:   {flow.Aborting, ExitAborted, ActNone},
	{flow.Aborting, EvDrained}:     {flow.Stopping, 0, ActStop},
	{flow.Aborting, EvFailed}:      {flow.Aborting, failCode, ActNone},
	{flow.Aborting, EvPoisoned}:    {flow.Poisoned, ExitStorage, ActDie},
	{flow.Stopping, EvClosed}:      {flow.Stopped, 0, ActEnd},
	{flow.Stopping, EvStraggled}:   {flow.Stopping, ExitAborted, ActNone},
	{flow.Stopping, EvFailed}:      {flow.Stopping, failCode, ActNone},
	{flow.Stopping, EvPoisoned}:    {flow.Poisoned, ExitStorage, ActDie},
}

// Every pair of phase and event acts as the table specifies. A pair that is missing from the table
// has no effect.
func TestLifecycleTable(t *testing.T) {
	for _, p := range allPhases {
		for k := range eventKinds {
			want, listed := moves[step{p, k}]
			if !listed {
				want = result{p, 0, ActNone}
			}
			s, do := Next(State{Phase: p}, Event{Kind: k, Code: failCode})
			if got := (result{s.Phase, s.Exit, do}); got != want {
				t.Errorf("%v + %d = %+v, want %+v", p, k, got, want)
			}
		}
	}
}

// From every state some run of events reaches an end, and no event leads out of one.
func TestLifecycleEnds(t *testing.T) {
	for _, p := range allPhases {
		s := State{Phase: p}
		for _, k := range []EventKind{EvOpened, EvRecovered, EvDrain, EvAbort, EvDrained, EvClosed} {
			s, _ = Next(s, Event{Kind: k})
		}
		if !terminal(s.Phase) {
			t.Errorf("from %v the node never ends: %v", p, s.Phase)
		}
		for k := range eventKinds {
			if after, do := Next(s, Event{Kind: k, Code: failCode}); after != s || do != ActNone {
				t.Errorf("%v is an end, yet event %d leads to %v", s.Phase, k, after)
			}
		}
	}
}

// Whatever happens, in whatever order: a failure is never forgotten, the gate opens at most once
// and never after a stop began, and the node ends only as stopped or poisoned.
func TestLifecycleLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, served, leaving, elected := State{}, 0, false, true
		for _, k := range rapid.SliceOf(rapid.IntRange(0, int(eventKinds)-1)).Draw(t, "events") {
			was := s
			after, do := Next(s, Event{Kind: EventKind(k), Code: failCode})
			s = after
			if was.Exit > ExitAborted && s.Exit != was.Exit && s.Phase != flow.Poisoned {
				t.Fatalf("exit %d became %d", was.Exit, s.Exit)
			}
			if do == ActServe {
				served++
			}
			elected = (elected || EventKind(k) == EvElected) && do != ActStandby
			if do == ActRecover && !elected {
				t.Fatal("a member recovers that was not elected")
			}
			if leaving && (do == ActServe || do == ActRecover || s.Phase < flow.Draining) {
				t.Fatalf("%v came back as %v", was.Phase, s.Phase)
			}
			leaving = leaving || s.Phase >= flow.Draining
			if (do == ActDie) != (s.Phase == flow.Poisoned && was.Phase != flow.Poisoned) {
				t.Fatalf("%v to %v asks for %d", was.Phase, s.Phase, do)
			}
		}
		if served > 1 {
			t.Fatalf("the gate opened %d times", served)
		}
	})
}

// The first failure names the exit code; an aborted task only turns a clean stop into 10.
func TestExitCodeKeepsFirstFailure(t *testing.T) {
	for _, tt := range []struct{ a, b, want int }{
		{0, 0, 0}, {0, 10, 10}, {10, 0, 10}, {10, 70, 70}, {70, 10, 70}, {70, 74, 70}, {65, 0, 65}, {0, 78, 78},
	} {
		t.Run(fmt.Sprint(tt.a, tt.b), func(t *testing.T) {
			if got := worst(tt.a, tt.b); got != tt.want {
				t.Errorf("worst(%d, %d) = %d, want %d", tt.a, tt.b, got, tt.want)
			}
		})
	}
}
