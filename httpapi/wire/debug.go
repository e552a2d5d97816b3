package wire

import "time"

// TaskInfo is one running task of the node, or one that has ended.
type TaskInfo struct {
	Service   string    `json:"service"`
	Name      string    `json:"name"`
	Instance  int       `json:"instance" doc:"from 0, where a task runs more than once"`
	State     string    `json:"state" enum:"running|backoff|done"`
	Since     time.Time `json:"since" doc:"begin of this state"`
	Restarts  uint64    `json:"restarts"`
	LastError string    `json:"last_error,omitzero" doc:"what ended its last life"`
}

// TaskList is the body of GET /admin/v1/tasks, sorted by service, name and instance.
type TaskList struct {
	Tasks []TaskInfo `json:"tasks"`
}

// QueueInfo is one declared channel of the node.
type QueueInfo struct {
	Service   string   `json:"service"`
	Name      string   `json:"name"`
	Kind      string   `json:"kind" enum:"queue|broadcast|watch|ticker"`
	Cap       int      `json:"cap"`
	Len       int      `json:"len"`
	Policy    string   `json:"policy" doc:"what happens to what does not fit"`
	Dropped   uint64   `json:"dropped"`
	Producers []string `json:"producers"`
	Consumers []string `json:"consumers"`
}

// QueueList is the body of GET /admin/v1/queues, sorted by service and name.
type QueueList struct {
	Queues []QueueInfo `json:"queues"`
}

// LogLevel is the body of GET and PUT /admin/v1/log-level: of one service or,
// when that is empty, of the node.
type LogLevel struct {
	Level   string `json:"level" enum:"trace|debug|info|warn|error"`
	Service string `json:"service,omitzero"`
}
