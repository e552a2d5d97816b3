package cluster

import (
	"cmp"
	"flag"
	"fmt"
	"hash/maphash"
	"slices"
	"testing"

	"ronbox/appliance/host/hosttest"
)

var crashes = flag.Int("crashes", 0, "crashes of lives that are not over, in the model")

const (
	modelNodes    = 3
	modelTerms    = 3
	modelCommands = 2
	modelLog      = modelTerms + modelCommands // each term has one barrier
)

// modelBounds limit the states of a search.
type modelBounds struct{ commands, crashes uint8 }

// modelEntry is an entry of a log. The command of a barrier is 0.
type modelEntry struct{ term, command, parent uint8 }

// modelDisk is the part of a node that survives a restart.
type modelDisk struct {
	term uint8
	log  [modelLog]modelEntry
	ends uint8                // entries of the log
	file [modelCommands]uint8 // commands in their order
	at   uint8                // place of the file
}

// modelPhase is the state of a committer.
type modelPhase uint8

const (
	modelIdle   modelPhase = iota
	modelOpen              // the transaction is open
	modelUnseen            // proposed, not yet met by the log
	modelStored
	modelRefused
	modelPlaced // the FSM waits for the commit
)

// modelNode is a node in one of its lives.
type modelNode struct {
	modelDisk
	led    uint8 // term in which raft leads here; 0: none
	commit uint8 // entries that are known to be in a quorum
	passed bool  // the barrier has reached the FSM
	office bool
	over   bool

	committer modelPhase
	command   uint8 // of the committer
	parent    uint8 // last command of the file when the transaction was opened
	proposed  uint8 // term of the proposal
}

// modelState is a state of three nodes and what their clients were told.
type modelState struct {
	nodes   [modelNodes]modelNode
	used    uint8 // commands
	crashes uint8
	acked   uint8 // a bit for each command
	nothing uint8 // commands that were answered with "nothing was done"
}

// modelFault describes the fault of a broken twin of the model.
type modelFault string

const (
	publishesFirst modelFault = "commits before it proposes"
	servesUnready  modelFault = "takes office before its barrier"
	leadsTwice     modelFault = "goes on after its leadership"
	takesAnyTerm   modelFault = "compares no terms in the latch"
	claimsNothing  modelFault = "withdraws what is in the log"
	commitsUnknown modelFault = "commits what is unknown"
)

// Every state of the committers, logs and leaderships of three nodes within the bounds is sound. In
// each broken twin one is not.
func TestModel(t *testing.T) {
	if hosttest.UnderRace() {
		t.Skip("it has one goroutine: `make test` runs this")
	}
	t.Parallel()
	bounds := modelBounds{modelCommands, uint8(*crashes)}
	for _, b := range []modelBounds{{1, 1}, bounds} {
		m := modelSearch{bounds: b}
		if m.run(); m.found != "" {
			t.Errorf("%s after\n%s", m.found, m.path())
		}
		t.Logf("%+v: %d states", b, len(m.states))
	}
	for _, fault := range []modelFault{
		publishesFirst, servesUnready, leadsTwice, takesAnyTerm, claimsNothing, commitsUnknown,
	} {
		m := modelSearch{fault: fault, bounds: bounds}
		if m.run(); m.found == "" {
			t.Errorf("a node that %s is sound in %d states", fault, len(m.states))
		}
		t.Logf("a node that %s: %s after %d states", fault, m.found, len(m.states))
	}
}

// modelSearch visits all states that can be reached, those with fewer steps first.
type modelSearch struct {
	fault  modelFault
	bounds modelBounds
	states []modelState
	from   []int    // by state: the one before it
	steps  []string // by state: the step to it
	seen   map[modelState]bool
	now    int    // state whose steps are taken
	found  string // why a state is not sound
}

func (m *modelSearch) run() {
	m.seen = map[modelState]bool{}
	m.visit("begin", modelState{})
	for m.now = 0; m.now < len(m.states) && m.found == ""; m.now++ {
		for i := range modelNodes {
			m.stepsOf(i)
			for j := range modelNodes {
				if i != j {
					m.stepsBetween(i, j)
				}
			}
		}
	}
}

var modelSeed = maphash.MakeSeed()

// visit adds a state if it is new. States that differ only in the order of the nodes are one.
func (m *modelSearch) visit(step string, s modelState) {
	slices.SortFunc(s.nodes[:], func(a, b modelNode) int {
		return cmp.Compare(maphash.Comparable(modelSeed, a), maphash.Comparable(modelSeed, b))
	})
	if m.seen[s] || m.found != "" {
		return
	}
	m.seen[s] = true
	m.states, m.from, m.steps = append(m.states, s), append(m.from, m.now), append(m.steps, step)
	if m.found = s.unsound(); m.found != "" {
		m.now = len(m.states) - 1
	}
}

// path returns the steps to the state that was found.
func (m *modelSearch) path() (text string) {
	for at := m.now; at > 0; at = m.from[at] {
		text = fmt.Sprintf("%s: %+v\n%s", m.steps[at], m.states[at], text)
	}
	return text
}

// stepsOf visits the states that follow by a step of node i alone.
func (m *modelSearch) stepsOf(i int) {
	was := m.states[m.now]
	for name, step := range modelSteps {
		s := was
		if step(&s, &s.nodes[i], m.fault) && s.used <= m.bounds.commands && s.crashes <= m.bounds.crashes {
			m.visit(name, s)
		}
	}
}

// stepsBetween visits the states that follow by a message of node i to node j and its answer.
func (m *modelSearch) stepsBetween(i, j int) {
	s := m.states[m.now]
	if a, b := &s.nodes[i], &s.nodes[j]; a.led > b.term && b.led != 0 {
		b.term = a.led // b still takes entries as the leader that it was
		m.visit("heartbeat", s)
	}
	s = m.states[m.now]
	if a, b := &s.nodes[i], &s.nodes[j]; a.led != 0 && a.led >= b.term && a.send(b, m.fault) {
		m.visit("append", s)
	}
	s = m.states[m.now]
	if a, b := &s.nodes[i], &s.nodes[j]; a.led == 0 && a.elect(b, m.fault) {
		m.visit("elect", s)
	}
}

// unsound returns what is wrong with s, "" if nothing is.
func (s *modelState) unsound() string {
	for i := range s.nodes {
		n := &s.nodes[i]
		if why := n.misled(); why != "" {
			return why
		}
		copies := 0 // of each command of the file
		inFile := uint8(0)
		for _, c := range n.file {
			inFile |= 1 << c
		}
		answering := 0
		for j := range s.nodes {
			m := &s.nodes[j]
			if m.lacks(inFile&^1) == 0 {
				copies++
			}
			if i != j && m.term == n.led && n.term == n.led {
				answering++
			}
			for k := range min(n.ends, m.ends) {
				if n.log[k].term == m.log[k].term && n.log[k] != m.log[k] {
					return "two logs differ at one index in one term"
				}
			}
		}
		switch {
		case copies <= modelNodes/2:
			return "a row is in a file and not in the logs of a quorum"
		case n.office && !n.over && answering > 0 && s.acked&^inFile != 0:
			return "a confirmed leader lacks an acknowledged row"
		case s.nothing&^n.lacks(s.nothing) != 0:
			return "a log has a command of which nothing was done"
		}
	}
	return ""
}

// lacks returns those of the commands that the log does not have.
func (n *modelNode) lacks(commands uint8) uint8 {
	for _, e := range n.log[:n.ends] {
		if e.command != 0 {
			commands &^= 1 << e.command
		}
	}
	return commands
}

// misled returns why the log does not lead to the file, "" if it does.
func (n *modelNode) misled() string {
	last, place := uint8(0), 0
	for _, e := range n.log[:min(n.at, n.ends)] {
		switch {
		case e.command == 0:
			continue
		case e.parent != last:
			return "a row does not follow the one before it"
		case n.file[place] != e.command:
			return "the log does not lead to the file"
		}
		last = e.command
		place++
	}
	if n.at > n.ends || n.last() != last {
		return "the log does not lead to the file"
	}
	return ""
}
