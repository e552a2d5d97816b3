package flow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// everyTask is the consumer name that stands for every task.
const everyTask = "*"

// Mermaid returns the catalogue as a flowchart. Tasks are boxes, grouped by service, with their tickers in them. A channel between two
// nodes is an edge, which it shares with others between the same two; one with more ends, or an open one, is a rounded node, so that it
// is named once. Queues are drawn solid, all else dotted. Handlers and the services that they feed come first.
func (c *Catalog) Mermaid() string {
	p := picture{drawn: map[string]bool{}, shared: map[edge][]Spec{}}
	tasks, specs := c.Tasks(), c.Specs()
	p.line("flowchart LR")
	fed := map[string]int{} // by service: 1 if handlers feed it
	for _, s := range specs {
		if slices.Contains(s.Producers, HTTP) {
			fed[s.Service] = 1
			p.end("", HTTP)
		}
	}
	services := c.services()
	slices.SortStableFunc(services, func(a, b string) int { return fed[b] - fed[a] })
	for _, service := range services {
		p.group(service, of(slices.Clone(tasks), service, func(t Task) string { return t.Service }), specs)
	}
	for _, s := range specs {
		p.channel(s)
	}
	for _, e := range p.edges {
		p.line("  %s", e.text(p.shared[e]))
	}
	return p.text.String()
}

// Overview returns the services as a flowchart: a box with the tasks of each, and an edge, with the names of the channels, from each
// that produces to each other that consumes. Channels of every task, tickers and what stays within a service are left to Mermaid.
func (c *Catalog) Overview() string {
	p := picture{drawn: map[string]bool{}, shared: map[edge][]Spec{}}
	p.line("flowchart LR")
	p.end("", HTTP)
	for _, service := range c.services() {
		var tasks []string
		for _, t := range c.Tasks() {
			if t.Service == service {
				tasks = append(tasks, plain(t.Name))
			}
		}
		if len(tasks) > 0 {
			p.node("", id(service), "[%q]", strings.Join(append([]string{"<b>" + plain(service) + "</b>"}, tasks...), br))
		}
	}
	for _, s := range c.Specs() {
		if s.Kind != KindTicker && !slices.Contains(slices.Concat(s.Producers, s.Consumers), everyTask) {
			p.between(s)
		}
	}
	for _, e := range p.edges {
		var names []string
		for _, s := range p.shared[e] {
			names = append(names, plain(s.Name))
		}
		p.line("  %s %s|%q| %s", e.from, e.arrow, strings.Join(names, br), e.to)
	}
	return p.text.String()
}

// between notes the edges of s that join two services.
func (p *picture) between(s Spec) {
	arrow := "-.->"
	if s.Kind == KindQueue {
		arrow = "-->"
	}
	var met []edge
	for _, from := range s.Producers {
		for _, to := range s.Consumers {
			e := edge{serviceID(s, from), arrow, serviceID(s, to)}
			if e.from != e.to && !slices.Contains(met, e) {
				met = append(met, e)
				p.join(e, s)
			}
		}
	}
}

// serviceID is the id, in an overview, of the service of a producer or consumer of s.
func serviceID(s Spec, name string) string {
	if name == HTTP {
		return "http_handlers"
	}
	service, _, _ := strings.Cut(qualify(s.Service, name), ".")
	return id(service)
}

// picture is a flowchart being written.
type picture struct {
	text   strings.Builder
	drawn  map[string]bool // ids of the nodes written so far
	edges  []edge          // in the order in which they were met
	shared map[edge][]Spec // the channels whose names an edge carries; none for one to or from a channel's own node
}

// edge is an arrow between two nodes, given by their ids.
type edge struct{ from, arrow, to string }

func (p *picture) line(format string, args ...any) {
	fmt.Fprintf(&p.text, format+"\n", args...)
}

// group draws the tasks of one service and those of its channels that are nodes.
func (p *picture) group(service string, tasks []Task, specs []Spec) {
	if len(tasks) == 0 {
		return
	}
	p.line("  subgraph svc_%s[%q]", id(service), service)
	for _, t := range tasks {
		p.node("  ", id(t.Service+"."+t.Name), "[%q]", taskLabel(t, specs))
	}
	for _, s := range specs {
		if s.Service == service && isNode(s) {
			p.node("  ", channelID(s), "([%q])", bounded(s)+br+policy(s))
		}
	}
	p.line("  end")
}

// channel notes the edges of s and draws the nodes at its ends that are no tasks.
func (p *picture) channel(s Spec) {
	if s.Kind == KindTicker {
		return
	}
	arrow := "-.->"
	if s.Kind == KindQueue {
		arrow = "-->"
	}
	if !isNode(s) {
		p.join(edge{p.end(s.Service, s.Producers[0]), arrow, p.end(s.Service, s.Consumers[0])}, s)
		return
	}
	p.node("", channelID(s), "([%q])", bounded(s)+br+policy(s))
	for _, name := range s.Producers {
		p.join(edge{p.end(s.Service, name), arrow, channelID(s)})
	}
	for _, name := range s.Consumers {
		p.join(edge{channelID(s), arrow, p.end(s.Service, name)})
	}
}

// join notes an edge once, with what it carries.
func (p *picture) join(e edge, s ...Spec) {
	if !slices.Contains(p.edges, e) {
		p.edges = append(p.edges, e)
	}
	p.shared[e] = append(p.shared[e], s...)
}

// end returns the id of a producer or consumer, drawing it first if it is no declared task.
func (p *picture) end(service, name string) string {
	switch name {
	case everyTask:
		return p.node("", "every_task", "((%q))", "every task")
	case HTTP:
		return p.node("", "http_handlers", "[[%q]]", "HTTP handlers")
	}
	name = qualify(service, name)
	return p.node("", id(name), "[%q]", name)
}

// node draws a node, once, and returns its id.
func (p *picture) node(indent, node, shape, label string) string {
	if !p.drawn[node] {
		p.drawn[node] = true
		p.line("  %s%s"+shape, indent, node, label)
	}
	return node
}

// isNode reports whether s is drawn as a node of its own and not as an edge.
func isNode(s Spec) bool {
	return s.Kind != KindTicker && (len(s.Producers) != 1 || len(s.Consumers) != 1)
}

const br = "<br>"

// taskLabel is "worker ×3" and a line for each ticker of the task.
func taskLabel(t Task, specs []Spec) string {
	label := plain(t.Name)
	if t.Count > 1 {
		label = fmt.Sprintf("%s ×%d", label, t.Count)
	}
	for _, s := range specs {
		mine := func(name string) bool { return qualify(s.Service, name) == t.Service+"."+t.Name }
		if s.Kind == KindTicker && slices.ContainsFunc(s.Consumers, mine) {
			label += br + "ticker " + plain(s.Name)
		}
	}
	return label
}

// text is the edge with the names of what it carries, each above the policy that it shares with the next.
func (e edge) text(carried []Spec) string {
	if len(carried) == 0 {
		return fmt.Sprintf("%s %s %s", e.from, e.arrow, e.to)
	}
	slices.SortStableFunc(carried, func(a, b Spec) int { return cmp.Compare(policy(a), policy(b)) })
	var lines []string
	for i, s := range carried {
		lines = append(lines, bounded(s))
		if i+1 == len(carried) || policy(carried[i+1]) != policy(s) {
			lines = append(lines, policy(s))
		}
	}
	return fmt.Sprintf("%s %s|%q| %s", e.from, e.arrow, strings.Join(lines, br), e.to)
}

// bounded is "proposals_tx · q512", with bc for a broadcast; a watch holds one value by nature.
func bounded(s Spec) string {
	switch s.Kind {
	case KindQueue:
		return fmt.Sprintf("%s · q%d", plain(s.Name), s.Cap)
	case KindBroadcast:
		return fmt.Sprintf("%s · bc%d", plain(s.Name), s.Cap)
	}
	return plain(s.Name)
}

// policy is what happens when s is full; a watch always keeps the last value, so its kind says more.
func policy(s Spec) string {
	if s.Kind == KindWatch {
		return string(KindWatch)
	}
	return plain(string(s.Policy))
}

// plain removes what ends a label.
func plain(text string) string {
	return strings.NewReplacer(`"`, "'", "|", "/").Replace(text)
}

// channelID is the id of a channel's own node; a task may have the same name.
func channelID(s Spec) string {
	return "ch_" + id(s.Service+"."+s.Name)
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
