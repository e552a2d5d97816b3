package flow

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// channelDoc is the JSON form of a Spec.
type channelDoc struct {
	Service   string   `json:"service"`
	Name      string   `json:"name"`
	Kind      Kind     `json:"kind"`
	Cap       int      `json:"cap"`
	Policy    Policy   `json:"policy"`
	Producers []string `json:"producers"`
	Consumers []string `json:"consumers"`
	Doc       string   `json:"doc"`
}

// taskDoc is the JSON form of a Task.
type taskDoc struct {
	Service    string `json:"service"`
	Name       string `json:"name"`
	Count      int    `json:"count"`
	Restart    string `json:"restart"`
	Background bool   `json:"background"`
	Doc        string `json:"doc"`
}

// Doc is the form of a catalogue in JSON. Its members are sorted.
type Doc struct {
	Channels []channelDoc `json:"channels"`
	Tasks    []taskDoc    `json:"tasks"`
	Locks    []Lock       `json:"locks"`
}

// Doc returns the catalogue for JSON.
func (c *Catalog) Doc() Doc {
	doc := Doc{[]channelDoc{}, []taskDoc{}, append([]Lock{}, c.ranks()...)}
	for _, s := range c.Specs() {
		doc.Channels = append(doc.Channels, channelDoc{s.Service, s.Name, s.Kind, s.Cap, s.Policy,
			append([]string{}, s.Producers...), append([]string{}, s.Consumers...), s.Doc})
	}
	for _, t := range c.Tasks() {
		doc.Tasks = append(doc.Tasks, taskDoc{t.Service, t.Name, t.Count, t.Restart.String(), t.Background, t.Doc})
	}
	return doc
}

// Markdown returns the catalogue as tables, one section per service: channels, tasks, locks, and
// the shutdown sequence if handlers feed the service.
func (c *Catalog) Markdown() string { return c.MarkdownBeyond(&Catalog{}) }

// MarkdownBeyond is Markdown without the services that are the same in base.
func (c *Catalog) MarkdownBeyond(base *Catalog) string {
	var sections []string
	for _, service := range c.services() {
		if text := c.section(service); text != base.section(service) {
			sections = append(sections, text)
		}
	}
	return strings.Join(sections, "\n")
}

// section returns the tables of one service.
func (c *Catalog) section(service string) string {
	var w strings.Builder
	fmt.Fprintf(&w, "### %s\n", service)
	writeChannels(&w, of(c.Specs(), service, func(s Spec) string { return s.Service }))
	writeTasks(&w, of(c.Tasks(), service, func(t Task) string { return t.Service }))
	writeLocks(&w, of(c.ranks(), service, func(l Lock) string { return l.Service }))
	if drawn := c.ShutdownSequence(service); drawn != "" {
		fmt.Fprintf(&w, "\n```mermaid\n%s```\n", drawn)
	}
	return w.String()
}

// services returns the names of all services that declared something, sorted.
func (c *Catalog) services() []string {
	var names []string
	for _, s := range c.Specs() {
		names = append(names, s.Service)
	}
	for _, t := range c.Tasks() {
		names = append(names, t.Service)
	}
	for _, l := range c.ranks() {
		names = append(names, l.Service)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// of returns the elements that belong to service.
func of[T any](all []T, service string, owner func(T) string) []T {
	return slices.DeleteFunc(all, func(v T) bool { return owner(v) != service })
}

func writeChannels(w *strings.Builder, specs []Spec) {
	if len(specs) == 0 {
		return
	}
	w.WriteString(
		"\n| Name | Kind | Capacity | Producers → Consumers | Backpressure policy " +
			"| Drop semantics, what the caller sees |\n",
	)
	w.WriteString("| --- | --- | ---: | --- | --- | --- |\n")
	for _, s := range specs {
		fmt.Fprintf(
			w,
			"| `%s` | %s | %s | %s → %s | %s | %s |\n",
			s.Name,
			s.Kind,
			capacity(s),
			names(s.Producers),
			names(s.Consumers),
			cell(string(s.Policy)),
			cell(s.Doc),
		)
	}
}

func writeTasks(w *strings.Builder, tasks []Task) {
	if len(tasks) == 0 {
		return
	}
	w.WriteString("\n| Task | Count | Restart | At drain | Does |\n| --- | ---: | --- | --- | --- |\n")
	for _, t := range tasks {
		drain := "drains"
		if t.Background {
			drain = "cancelled at once"
		}
		fmt.Fprintf(w, "| `%s` | %d | %s | %s | %s |\n", t.Name, t.Count, t.Restart, drain, cell(t.Doc))
	}
}

func writeLocks(w *strings.Builder, locks []Lock) {
	if len(locks) == 0 {
		return
	}
	w.WriteString("\n| Lock | Rank | Count |\n| --- | ---: | ---: |\n")
	for _, l := range locks {
		fmt.Fprintf(w, "| `%s` | %d | %d |\n", l.Name, l.Rank, l.Count)
	}
}

func capacity(s Spec) string {
	switch {
	case s.Cap == 0 && s.Kind == KindSlots:
		return "processors"
	case s.Cap == 0:
		return "-"
	}
	return strconv.Itoa(s.Cap)
}

// names formats producers or consumers for a table cell.
func names(list []string) string {
	if len(list) == 0 {
		return "-"
	}
	shown := slices.Clone(list)
	for i, n := range shown {
		if n == everyTask {
			shown[i] = "every task"
		}
	}
	return strings.Join(shown, ", ")
}

// cell escapes text for a table cell.
func cell(text string) string {
	if text == "" {
		return "-"
	}
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(text)
}

// supervisorName is the participant that starts a drain and joins the tasks.
const supervisorName = "supervisor"

// drain simulates the shutdown of one service from its declarations.
type drain struct {
	service string
	open    []Spec          // queues and broadcasts of the service that are still open
	tasks   []Task          // tasks that have not ended
	gone    map[string]bool // producers that have ended, by key
	text    strings.Builder
}

// ShutdownSequence returns the drain of a service as a sequence diagram. It follows the rule of
// [Catalog.CloseFedBy]: a channel closes when its last producer has ended, and a task ends when
// every channel of the service that it reads is closed. A task that also waits for another service,
// or that reads no channel, ends when its own channels are closed. ShutdownSequence returns "" if
// no channel of the service closes when the handlers are done.
func (c *Catalog) ShutdownSequence(service string) string {
	d := drain{service: service, gone: map[string]bool{}}
	d.tasks = of(c.Tasks(), service, func(t Task) string { return t.Service })
	for _, s := range of(c.Specs(), service, func(s Spec) string { return s.Service }) {
		if s.Kind == KindQueue || s.Kind == KindBroadcast {
			d.open = append(d.open, s)
		}
	}
	d.line("sequenceDiagram")
	d.line("  participant %s", supervisorName)
	d.line("  participant %s as HTTP handlers", HTTP)
	for _, t := range d.tasks {
		d.line("  participant %s", t.Name)
	}
	d.line("  %s->>%s: shutdown, new work is refused", supervisorName, HTTP)
	d.cancelBackground()
	d.line("  %s-->>%s: intake stopped", HTTP, supervisorName)
	if open := len(d.open); d.end(HTTP) == open {
		return ""
	}
	for d.joinNext() {
	}
	return d.text.String()
}

func (d *drain) line(format string, args ...any) {
	fmt.Fprintf(&d.text, format+"\n", args...)
}

// cancelBackground ends the Background tasks, which do not drain.
func (d *drain) cancelBackground() {
	for _, t := range slices.Clone(d.tasks) {
		if t.Background {
			d.line("  %s-x%s: cancelled", supervisorName, t.Name)
			d.remove(t)
			d.end(t.Name)
		}
	}
}

// joinNext joins the next task whose channels are closed. If there is none, the first remaining
// task waits for another service and is joined next.
func (d *drain) joinNext() bool {
	if len(d.tasks) == 0 {
		return false
	}
	at := max(0, slices.IndexFunc(d.tasks, func(t Task) bool { return !d.reads(t) }))
	t := d.tasks[at]
	d.remove(t)
	d.line("  %s-->>%s: drained, or aborted at the deadline", t.Name, supervisorName)
	d.end(t.Name)
	return true
}

// reads reports whether t reads a channel that is still open.
func (d *drain) reads(t Task) bool {
	return slices.ContainsFunc(d.open, func(s Spec) bool { return slices.Contains(s.Consumers, t.Name) })
}

func (d *drain) remove(t Task) {
	d.tasks = slices.DeleteFunc(d.tasks, func(left Task) bool { return left.Name == t.Name })
}

// end records that a producer of the service has ended, closes the channels of which it was the
// last producer, and returns the number of channels that are open.
func (d *drain) end(producer string) int {
	d.gone[feeder(d.service, producer)] = true
	d.open = slices.DeleteFunc(d.open, func(s Spec) bool {
		feeds := slices.Contains(s.Producers, producer)
		live := slices.ContainsFunc(s.Producers, func(p string) bool { return !d.gone[feeder(d.service, p)] })
		if !feeds || live {
			return false
		}
		for _, to := range s.Consumers {
			if to == HTTP || slices.ContainsFunc(d.tasks, func(t Task) bool { return t.Name == to }) {
				d.line("  %s->>%s: %s closed", producer, to, s.Name)
			}
		}
		return true
	})
	return len(d.open)
}
