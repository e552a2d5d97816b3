package appliance

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"ronbox/appliance/flow"
)

var allPhases = []flow.Phase{
	flow.Booting, flow.Recovering, flow.Running, flow.Degraded, flow.Draining, flow.Aborting, flow.Stopping,
	flow.Stopped, flow.Poisoned,
}

type step struct {
	phase flow.Phase
	kind  eventKind
}

type result struct {
	phase flow.Phase
	exit  int
	do    action
}

const failCode = ExitInternal

// moves lists every pair of phase and event that changes anything, from an exit code of 0. All other pairs are inert.
var moves = map[step]result{
	{flow.Booting, evOpened}:       {flow.Recovering, 0, actRecover},
	{flow.Booting, evDrain}:        {flow.Stopping, 0, actStop},
	{flow.Booting, evAbort}:        {flow.Stopping, 0, actStop},
	{flow.Booting, evFailed}:       {flow.Stopping, failCode, actStop},
	{flow.Booting, evPoisoned}:     {flow.Poisoned, ExitStorage, actDie},
	{flow.Recovering, evRecovered}: {flow.Running, 0, actServe},
	{flow.Recovering, evDrain}:     {flow.Stopping, 0, actStop},
	{flow.Recovering, evAbort}:     {flow.Stopping, 0, actStop},
	{flow.Recovering, evFailed}:    {flow.Stopping, failCode, actStop},
	{flow.Recovering, evPoisoned}:  {flow.Poisoned, ExitStorage, actDie},
	{flow.Running, evDegraded}:     {flow.Degraded, 0, actNone},
	{flow.Running, evHealed}:       {flow.Running, 0, actNone},
	{flow.Running, evDrain}:        {flow.Draining, 0, actDrain},
	{flow.Running, evAbort}:        {flow.Aborting, ExitAborted, actAbort},
	{flow.Running, evFailed}:       {flow.Aborting, failCode, actAbort},
	{flow.Running, evPoisoned}:     {flow.Poisoned, ExitStorage, actDie},
	{flow.Degraded, evHealed}:      {flow.Running, 0, actNone},
	{flow.Degraded, evDegraded}:    {flow.Degraded, 0, actNone},
	{flow.Degraded, evDrain}:       {flow.Draining, 0, actDrain},
	{flow.Degraded, evAbort}:       {flow.Aborting, ExitAborted, actAbort},
	{flow.Degraded, evFailed}:      {flow.Aborting, failCode, actAbort},
	{flow.Degraded, evPoisoned}:    {flow.Poisoned, ExitStorage, actDie},
	{flow.Draining, evDrain}:       {flow.Aborting, ExitAborted, actAbort},
	{flow.Draining, evAbort}:       {flow.Aborting, ExitAborted, actAbort},
	{flow.Draining, evOverdue}:     {flow.Aborting, ExitAborted, actAbort},
	{flow.Draining, evStraggled}:   {flow.Aborting, ExitAborted, actAbort},
	{flow.Draining, evDrained}:     {flow.Stopping, 0, actStop},
	{flow.Draining, evFailed}:      {flow.Aborting, failCode, actAbort},
	{flow.Draining, evPoisoned}:    {flow.Poisoned, ExitStorage, actDie},
	{flow.Aborting, evDrain}:       {flow.Aborting, ExitAborted, actNone},
	{flow.Aborting, evAbort}:       {flow.Aborting, ExitAborted, actNone},
	{flow.Aborting, evOverdue}:     {flow.Aborting, ExitAborted, actNone},
	{flow.Aborting, evStraggled}:   {flow.Aborting, ExitAborted, actNone},
	{flow.Aborting, evDrained}:     {flow.Stopping, 0, actStop},
	{flow.Aborting, evFailed}:      {flow.Aborting, failCode, actNone},
	{flow.Aborting, evPoisoned}:    {flow.Poisoned, ExitStorage, actDie},
	{flow.Stopping, evClosed}:      {flow.Stopped, 0, actEnd},
	{flow.Stopping, evStraggled}:   {flow.Stopping, ExitAborted, actNone},
	{flow.Stopping, evFailed}:      {flow.Stopping, failCode, actNone},
	{flow.Stopping, evPoisoned}:    {flow.Poisoned, ExitStorage, actDie},
}

// Every pair of phase and event does what the table says, and a pair that is not in it does nothing.
func TestLifecycleTable(t *testing.T) {
	for _, p := range allPhases {
		for k := range eventKinds {
			want, listed := moves[step{p, k}]
			if !listed {
				want = result{p, 0, actNone}
			}
			s, do := next(state{phase: p}, event{kind: k, code: failCode})
			if got := (result{s.phase, s.exit, do}); got != want {
				t.Errorf("%v + %d = %+v, want %+v", p, k, got, want)
			}
		}
	}
}

// From every state some run of events reaches an end, and no event leads out of one.
func TestLifecycleEnds(t *testing.T) {
	for _, p := range allPhases {
		s := state{phase: p}
		for _, k := range []eventKind{evOpened, evRecovered, evDrain, evAbort, evDrained, evClosed} {
			s, _ = next(s, event{kind: k})
		}
		if !terminal(s.phase) {
			t.Errorf("from %v the node never ends: %v", p, s.phase)
		}
		for k := range eventKinds {
			if after, do := next(s, event{kind: k, code: failCode}); after != s || do != actNone {
				t.Errorf("%v is an end, yet event %d leads to %v", s.phase, k, after)
			}
		}
	}
}

// Whatever happens, in whatever order: a failure is never forgotten, the gate opens at most once and never after a stop
// began, and the node ends only as stopped or poisoned.
func TestLifecycleLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, served, leaving := state{}, 0, false
		for _, k := range rapid.SliceOf(rapid.IntRange(0, int(eventKinds)-1)).Draw(t, "events") {
			was := s
			after, do := next(s, event{kind: eventKind(k), code: failCode})
			s = after
			if was.exit > ExitAborted && s.exit != was.exit && s.phase != flow.Poisoned {
				t.Fatalf("exit %d became %d", was.exit, s.exit)
			}
			if do == actServe {
				served++
			}
			if leaving && (do == actServe || do == actRecover || s.phase < flow.Draining) {
				t.Fatalf("%v came back as %v", was.phase, s.phase)
			}
			leaving = leaving || s.phase >= flow.Draining
			if (do == actDie) != (s.phase == flow.Poisoned && was.phase != flow.Poisoned) {
				t.Fatalf("%v to %v asks for %d", was.phase, s.phase, do)
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
