package flow

import (
	"fmt"
	"slices"
	"strings"
)

// everyTask is the consumer name that stands for every task.
const everyTask = "*"

// Mermaid returns the catalogue as a flowchart: tasks are nodes, grouped by service; channels are edges with kind, capacity and policy.
// Queues are drawn solid, all else dotted.
func (c *Catalog) Mermaid() string {
	p := picture{nodes: map[string]bool{}}
	p.line("flowchart LR")
	tasks := c.Tasks()
	for _, service := range c.services() {
		p.group(service, of(slices.Clone(tasks), service, func(t Task) string { return t.Service }))
	}
	for _, s := range c.Specs() {
		p.edge(s)
	}
	return p.text.String()
}

// picture is a flowchart being written.
type picture struct {
	text  strings.Builder
	nodes map[string]bool // ids written so far
}

func (p *picture) line(format string, args ...any) {
	fmt.Fprintf(&p.text, format+"\n", args...)
}

// group draws the tasks of one service.
func (p *picture) group(service string, tasks []Task) {
	if len(tasks) == 0 {
		return
	}
	p.line("  subgraph svc_%s[%q]", id(service), service)
	for _, t := range tasks {
		label := t.Name
		if t.Count > 1 {
			label = fmt.Sprintf("%s ×%d", t.Name, t.Count)
		}
		node := id(t.Service + "." + t.Name)
		p.nodes[node] = true
		p.line("    %s[%q]", node, label)
	}
	p.line("  end")
}

// edge draws the channel s from its producers to its consumers.
func (p *picture) edge(s Spec) {
	source := openEnd
	if s.Kind == KindTicker {
		source = clock
	}
	from, to := p.ends(s, s.Producers, source), p.ends(s, s.Consumers, openEnd)
	arrow := "-.->"
	if s.Kind == KindQueue {
		arrow = "-->"
	}
	p.line("  %s %s|\"%s\"| %s", from, arrow, edgeLabel(s), to)
}

// A side of an edge that names nobody: time itself for a ticker, otherwise nothing that the catalogue knows.
const (
	openEnd = "outside"
	clock   = "clock"
)

// ends returns the nodes of producers or consumers as one side of an edge, drawing those that are no task first. If none are named it is
// the node nobody.
func (p *picture) ends(s Spec, list []string, nobody string) string {
	nodes := make([]string, 0, len(list))
	for _, name := range list {
		full := id(qualify(s.Service, name))
		switch {
		case p.nodes[full]:
			nodes = append(nodes, full)
		case name == everyTask:
			nodes = append(nodes, p.node("every_task", `(("every task"))`))
		case name == HTTP:
			nodes = append(nodes, p.node("http_handlers", `(["HTTP handlers"])`))
		default:
			nodes = append(nodes, p.node(full, fmt.Sprintf("([%q])", qualify(s.Service, name))))
		}
	}
	if len(nodes) == 0 {
		return p.node(nobody, fmt.Sprintf("((%q))", nobody))
	}
	slices.Sort(nodes)
	return strings.Join(slices.Compact(nodes), " & ")
}

// node draws a node that is no task, once, and returns its id.
func (p *picture) node(node, shape string) string {
	if !p.nodes[node] {
		p.nodes[node] = true
		p.line("  %s%s", node, shape)
	}
	return node
}

// edgeLabel is "q512 registry.proposals_tx: reject new", with bc for a broadcast; a watch and a ticker go without capacity and policy.
func edgeLabel(s Spec) string {
	name := s.Service + "." + s.Name
	switch s.Kind {
	case KindQueue:
		return fmt.Sprintf("q%d %s: %s", s.Cap, name, plain(string(s.Policy)))
	case KindBroadcast:
		return fmt.Sprintf("bc%d %s: %s", s.Cap, name, plain(string(s.Policy)))
	}
	return fmt.Sprintf("%s %s", s.Kind, name)
}

// plain removes what ends a label.
func plain(text string) string {
	return strings.NewReplacer(`"`, "'", "|", "/").Replace(text)
}

// id makes a name an identifier of the flowchart.
func id(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, name)
}
