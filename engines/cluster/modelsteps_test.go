package cluster

import "slices"

// modelSteps are the steps of one node. A step reports whether it can be taken.
var modelSteps = map[string]func(s *modelState, n *modelNode, fault modelFault) bool{
	"step down": func(_ *modelState, n *modelNode, fault modelFault) bool {
		late := n.led != 0 && n.term > n.led
		n.stepDown(fault)
		return late
	},
	"barrier": func(_ *modelState, n *modelNode, _ modelFault) bool {
		return n.led != 0 && n.led == n.term && !n.office && n.append(modelEntry{term: n.led})
	},
	"office": func(_ *modelState, n *modelNode, fault modelFault) bool {
		if n.led == 0 || n.office || n.over || !n.passed && fault != servesUnready {
			return false
		}
		n.office = true
		return true
	},
	"open": func(s *modelState, n *modelNode, fault modelFault) bool {
		if !n.office || n.over || n.committer != modelIdle {
			return false
		}
		s.used++
		n.committer, n.command, n.parent = modelOpen, s.used, n.last()
		if fault == publishesFirst {
			n.write(n.command)
		}
		return true
	},
	"propose": func(s *modelState, n *modelNode, _ modelFault) bool {
		if n.committer != modelOpen {
			return false
		}
		if n.led == 0 || n.over {
			n.over = true
			n.leave(&s.nothing)
			return true
		}
		n.committer, n.proposed = modelUnseen, n.led
		return true
	},
	"take": func(_ *modelState, n *modelNode, fault modelFault) bool {
		if n.led == 0 || n.committer != modelUnseen {
			return false
		}
		if n.term != n.proposed && fault != takesAnyTerm {
			n.committer = modelRefused
			return true
		}
		n.committer = modelStored
		return n.append(modelEntry{n.term, n.command, n.parent})
	},
	"apply": func(_ *modelState, n *modelNode, _ modelFault) bool { return n.apply() },
	"commit": func(s *modelState, n *modelNode, fault modelFault) bool {
		if n.committer != modelPlaced {
			return false
		}
		if fault != publishesFirst {
			n.write(n.command)
		}
		n.at++
		n.leave(&s.acked)
		return true
	},
	"abandon": func(s *modelState, n *modelNode, fault modelFault) bool {
		none := n.committer == modelUnseen || n.committer == modelRefused
		switch {
		case none || n.committer == modelStored && fault == claimsNothing:
			n.leave(&s.nothing)
		case n.committer == modelStored && fault == commitsUnknown:
			n.write(n.command)
			n.leave(&s.acked)
		case n.committer == modelStored:
			n.leave(new(uint8))
		default:
			return false
		}
		n.over = true
		return true
	},
	"restart": func(s *modelState, n *modelNode, _ modelFault) bool {
		if !n.over {
			s.crashes++
		}
		*n = modelNode{modelDisk: n.modelDisk, commit: n.at}
		return true
	},
}

// elect makes n the leader with the vote of v.
func (n *modelNode) elect(v *modelNode, fault modelFault) bool {
	newest := func(n *modelNode) [2]uint8 {
		if n.ends == 0 {
			return [2]uint8{}
		}
		return [2]uint8{n.log[n.ends-1].term, n.ends}
	}
	ours, theirs := newest(n), newest(v)
	term := max(n.term, v.term) + 1
	if term > modelTerms || slices.Compare(ours[:], theirs[:]) < 0 {
		return false
	}
	v.stepDown(fault)
	n.term, v.term, n.led = term, term, term
	return true
}

// send appends the next entry that f lacks to its log, and tells it what a quorum has. It reports
// whether that changes anything.
func (n *modelNode) send(f *modelNode, fault modelFault) bool {
	before := [2]modelNode{*n, *f}
	f.stepDown(fault)
	f.term = n.led
	same := uint8(0)
	for same < min(n.ends, f.ends) && n.log[same] == f.log[same] {
		same++
	}
	if same < n.ends {
		clear(f.log[same:])
		f.log[same] = n.log[same]
		same++
		f.ends = same
	}
	f.commit = max(f.commit, min(n.commit, same))
	if same > 0 && n.log[same-1].term == n.led {
		n.commit = max(n.commit, same)
	}
	return before != [2]modelNode{*n, *f}
}

// stepDown ends the leadership of n, if it has one.
func (n *modelNode) stepDown(fault modelFault) {
	if n.led != 0 && n.office && fault != leadsTwice {
		n.over = true
	}
	n.led, n.passed = 0, false
}

// append appends to the log. It reports whether the log has room.
func (n *modelNode) append(e modelEntry) bool {
	if n.ends == modelLog || e.command == 0 && slices.Contains(n.log[:n.ends], e) {
		return false
	}
	n.log[n.ends] = e
	n.ends++
	return true
}

// apply hands the next entry of a quorum to the FSM.
func (n *modelNode) apply() bool {
	if n.at >= n.commit || n.over || n.committer == modelPlaced {
		return false
	}
	e := n.log[n.at]
	switch {
	case e.command == 0:
		n.passed = n.passed || n.led == e.term
		n.at++
	case n.committer == modelStored && n.command == e.command:
		n.committer = modelPlaced
	case n.office:
		n.over = true
	default:
		n.write(e.command)
		n.at++
	}
	return true
}

// leave ends the transaction and tells its client an outcome.
func (n *modelNode) leave(outcome *uint8) {
	*outcome |= 1 << n.command
	n.committer, n.command, n.parent, n.proposed = modelIdle, 0, 0, 0
}

// last returns the last command of the file, 0 if it has none.
func (n *modelNode) last() (command uint8) {
	for _, c := range n.file {
		if c != 0 {
			command = c
		}
	}
	return command
}

// write appends a command to the file.
func (n *modelNode) write(command uint8) {
	if free := slices.Index(n.file[:], 0); free >= 0 {
		n.file[free] = command
	}
}
