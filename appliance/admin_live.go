package appliance

import (
	"ronbox/appliance/flow"
	"ronbox/httpapi/wire"
)

// Tasks lists every instance of a task that was started, and the supervisor, which is Run itself.
func (n *Node) Tasks() wire.TaskList {
	out := wire.TaskList{Tasks: []wire.TaskInfo{{
		Service: ownService, Name: "supervisor", State: string(flow.LifeRunning), Since: n.started.UTC(),
	}}}
	for _, t := range n.sup.Tasks() {
		info := wire.TaskInfo{
			Service: t.Service, Name: t.Task, Instance: t.Index, State: string(t.State), Since: t.Since.UTC(), Restarts: uint64(t.Restarts),
		}
		if t.LastError != nil {
			info.LastError = t.LastError.Error()
		}
		out.Tasks = append(out.Tasks, info)
	}
	return out
}

// Queues lists every channel whose state is known.
func (n *Node) Queues() wire.QueueList {
	out := wire.QueueList{Queues: []wire.QueueInfo{}}
	for _, c := range n.catalog.Channels() {
		out.Queues = append(out.Queues, wire.QueueInfo{
			Service: c.Service, Name: c.Name, Kind: string(c.Kind), Cap: c.Cap, Len: c.Len, Policy: string(c.Policy), Dropped: c.Dropped,
			Producers: append([]string{}, c.Producers...), Consumers: append([]string{}, c.Consumers...),
		})
	}
	return out
}
