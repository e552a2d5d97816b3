package rewarder

import (
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/store"
)

type Job = job
type Request = request

const (
	Service, QueueCap, MaxEpochs           = service, queueCap, maxEpochs
	ToCompute, ToPay, ToWrite              = toCompute, toPay, toWrite
	KeyQueue, KeyLedger, KeyStore          = keyQueue, keyLedger, keyStore
	KeyArtifact, KeyPayment                = keyArtifact, keyPayment
	TaskScheduler, TaskWorker, TaskEmitter = taskScheduler, taskWorker, taskEmitter
	TaskWriter, TaskHealth                 = taskWriter, taskHealth
	UploadCost, AnswerWithin               = uploadCost, answerWithin
)

var (
	PolicyRows, InputRows, SlotRows    = policies, inputs, slots
	UploadRows, ChunkRows, StartedRows = uploads, chunks, started
	SealedRows, AllocRows, TodoRows    = sealed, allocs, todos
	IntentRows, ParkedRows             = intents, parked
	Scoped, Check, Instant             = scoped, check, instant
	Load, Scores, RoomDelay            = (*Engine).load, (*Engine).scores, roomDelay
	PayChunk, PayEach                  = (*Engine).payChunk, (*Engine).payEach
	BeginDrop, UploadOf, Marked        = (*Engine).beginDrop, (*Engine).upload, (*Engine).marked
	Publish, CallSpec                  = (*Engine).publish, (*Engine).callSpec
	Backpressure                       = (*Engine).backpressure
)

func Must[K, V any](r store.Reader, t store.Table[K, V], key K) V { return must(r, t, key) }
func PieceOf(id b3.Digest, n uint32) piece                        { return piece{id, n} }
func JobOf(slot string, key b3.Digest) Job                        { return job{slot, key} }
func Command(kind string, size int, do func(store.Reader, *store.Writes) (struct{}, error)) store.Command[struct{}] {
	return command[struct{}]{kind, size, do}
}
func NewRequest(by Call, j Job, want ComputeRequest) *Request {
	return &request{by, j, want, flow.NewReply[Run]()}
}
func (q *request) Reply() *flow.Reply[Run]          { return q.reply }
func (p *payment) Row(i int) Parked                 { return p.row(i) }
func (e *Engine) Look() *flow.Ticker                { return e.look }
func (e *Engine) Tick() *flow.Ticker                { return e.tick }
func (e *Engine) Todo(kind uint32) *flow.Queue[Job] { return e.todo[kind] }
func (e *Engine) Requests() *flow.Queue[*Request]   { return e.requests }
func (e *Engine) Events() *flow.Broadcast[Event]    { return e.events }
func (e *Engine) Answers() *time.Duration           { return &e.answers }
func (e *Engine) Admitting() int64                  { return e.admitting.Load() }
func (e *Engine) Unwrote() bool                     { return e.unwrote.Load() }
func (e *Engine) Others() *bool                     { return &e.others }
func (e *Engine) Folder() *string                   { return &e.folder }
func (e *Engine) LedgerIsShut() bool                { return e.calls.IsOpen() }
func (e *Engine) QuotaUsed() uint64                 { return e.quota.all }
func (e *Engine) Quarantine(epoch string)           { e.m.quarantined.Add(epoch) }
