package flow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// everyTask is the consumer name that stands for all tasks.
const everyTask = "*"

// Mermaid returns the catalogue as a flowchart. Each service is a group of boxes, one per task,
// which also name the task's tickers. A channel between two nodes is an edge; channels between the
// same two nodes share one. A channel with more ends, or with an open end, is a rounded node.
// Queues are solid, all other channels dotted. Handlers and the services they feed come first.
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

// Overview returns the services as a flowchart. Each service is one box that lists its tasks. An
// edge names the channels from one service to another. Tickers, slots, channels read by every task,
// and channels within a service are omitted.
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
			p.node("", id(service), "[%q]",
				strings.Join(append([]string{"<b>" + plain(service) + "</b>"}, tasks...), br))
		}
	}
	for _, s := range c.Specs() {
		if isChannel(s) && !slices.Contains(slices.Concat(s.Producers, s.Consumers), everyTask) {
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

// between adds the edges of s that join two services.
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

// serviceID returns the id, in an overview, of the service of a producer or consumer of s.
func serviceID(s Spec, name string) string {
	if name == HTTP {
		return "http_handlers"
	}
	service, _, _ := strings.Cut(qualify(s.Service, name), ".")
	return id(service)
}

// picture is a flowchart under construction.
type picture struct {
	text   strings.Builder
	drawn  map[string]bool // ids of the nodes written so far
	edges  []edge          // in order of appearance
	shared map[edge][]Spec // channels named on an edge; empty for an edge to or from a channel's own node
}

// edge is an arrow between two nodes, given by their ids.
type edge struct{ from, arrow, to string }

func (p *picture) line(format string, args ...any) {
	fmt.Fprintf(&p.text, format+"\n", args...)
}

// group draws the tasks of one service and its channels that are nodes.
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

// channel adds the edges of s and draws those of its ends that are not tasks.
func (p *picture) channel(s Spec) {
	if !isChannel(s) {
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

// join adds an edge once, and s to the channels that it carries.
func (p *picture) join(e edge, s ...Spec) {
	if !slices.Contains(p.edges, e) {
		p.edges = append(p.edges, e)
	}
	p.shared[e] = append(p.shared[e], s...)
}

// end returns the id of a producer or consumer. If it is not a declared task, end draws it first.
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

// isChannel reports whether values go through s. Tickers and slots are drawn in no flow.
func isChannel(s Spec) bool { return s.Kind != KindTicker && s.Kind != KindSlots }

// isNode reports whether s is drawn as a node instead of an edge.
func isNode(s Spec) bool {
	return isChannel(s) && (len(s.Producers) != 1 || len(s.Consumers) != 1)
}

const br = "<br>"

// taskLabel returns a label such as "worker ×3", with one line for each ticker of the task.
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

// text returns the edge with the names of its channels. Consecutive channels with the same policy
// name it once.
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

// bounded returns a name with its capacity, such as "proposals_tx · q512", or bc for a broadcast. A
// watch always holds one value, so its capacity is not shown.
func bounded(s Spec) string {
	switch s.Kind {
	case KindQueue:
		return fmt.Sprintf("%s · q%d", plain(s.Name), s.Cap)
	case KindBroadcast:
		return fmt.Sprintf("%s · bc%d", plain(s.Name), s.Cap)
	}
	return plain(s.Name)
}

// policy returns the overflow policy of s. For a watch it returns the kind, because a watch always
// keeps the last value.
func policy(s Spec) string {
	if s.Kind == KindWatch {
		return string(KindWatch)
	}
	return plain(string(s.Policy))
}

// plain replaces characters that would end a label.
func plain(text string) string {
	return strings.NewReplacer(`"`, "'", "|", "/").Replace(text)
}

// channelID returns the id of a channel's own node. It differs from that of a task of the same
// name.
func channelID(s Spec) string {
	return "ch_" + id(s.Service+"."+s.Name)
}

// id converts a name to an identifier of the flowchart.
func id(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, name)
}
