package telemetry

import (
	"encoding/binary"
	"math"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// encode returns an ExportTraceServiceRequest of opentelemetry-proto in the wire format of protobuf. Field numbers are
// those of opentelemetry/proto/trace/v1/trace.proto, common/v1/common.proto and resource/v1/resource.proto. All spans
// belong to one tracer.
func encode(spans []sdk.ReadOnlySpan) []byte {
	if len(spans) == 0 {
		return nil
	}
	var resource, scope, scoped message
	for _, kv := range spans[0].Resource().Attributes() {
		resource.attribute(1, kv)
	}
	scope.text(1, spans[0].InstrumentationScope().Name)
	scope.text(2, spans[0].InstrumentationScope().Version)
	scoped.message(1, scope)
	for _, s := range spans {
		scoped.message(2, encodeSpan(s))
	}
	var group, request message
	group.message(1, resource)
	group.message(2, scoped)
	group.text(3, spans[0].Resource().SchemaURL())
	request.message(1, group)
	return request
}

func encodeSpan(s sdk.ReadOnlySpan) message {
	var m message
	own, parent := s.SpanContext(), s.Parent()
	traceID, spanID := own.TraceID(), own.SpanID()
	m.bytes(1, traceID[:])
	m.bytes(2, spanID[:])
	m.text(3, own.TraceState().String())
	if parent.SpanID().IsValid() {
		id := parent.SpanID()
		m.bytes(4, id[:])
	}
	m.text(5, s.Name())
	m.number(6, uint64(s.SpanKind())) // the same numbers
	m.fixed64(7, nanos(s.StartTime()))
	m.fixed64(8, nanos(s.EndTime()))
	for _, kv := range s.Attributes() {
		m.attribute(9, kv)
	}
	m.number(10, uint64(s.DroppedAttributes()))
	for _, e := range s.Events() {
		var event message
		event.fixed64(1, nanos(e.Time))
		event.text(2, e.Name)
		for _, kv := range e.Attributes {
			event.attribute(3, kv)
		}
		event.number(4, uint64(e.DroppedAttributeCount))
		m.message(11, event)
	}
	m.number(12, uint64(s.DroppedEvents()))
	m.status(s.Status())
	m.fixed32(16, flags(own, parent))
	return m
}

// flags are the flags of the trace, and whether the parent is in another process.
func flags(own, parent trace.SpanContext) uint32 {
	f := uint32(own.TraceFlags()) | 0x100
	if parent.IsRemote() {
		f |= 0x200
	}
	return f
}

func (m *message) status(s sdk.Status) {
	var status message
	status.text(2, s.Description)
	switch s.Code {
	case codes.Ok:
		status.number(3, 1)
	case codes.Error:
		status.number(3, 2)
	}
	if len(status) > 0 {
		m.message(15, status)
	}
}

func nanos(t time.Time) uint64 { return uint64(max(0, t.UnixNano())) }

// A message is a protobuf message that is built field by field. Zero values are left out, as in proto3.
type message []byte

// The types of fields on the wire.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

func (m *message) tag(field, wire uint64) { *m = binary.AppendUvarint(*m, field<<3|wire) }

func (m *message) number(field, v uint64) {
	if v != 0 {
		m.tag(field, wireVarint)
		*m = binary.AppendUvarint(*m, v)
	}
}

func (m *message) fixed64(field, v uint64) {
	if v != 0 {
		m.tag(field, wireFixed64)
		*m = binary.LittleEndian.AppendUint64(*m, v)
	}
}

func (m *message) fixed32(field uint64, v uint32) {
	if v != 0 {
		m.tag(field, wireFixed32)
		*m = binary.LittleEndian.AppendUint32(*m, v)
	}
}

func (m *message) bytes(field uint64, v []byte) {
	m.tag(field, wireBytes)
	*m = append(binary.AppendUvarint(*m, uint64(len(v))), v...)
}

// text writes a string. It must be UTF-8, or receivers refuse the whole batch.
func (m *message) text(field uint64, v string) {
	if v != "" {
		m.bytes(field, []byte(strings.ToValidUTF8(v, "\ufffd")))
	}
}

func (m *message) message(field uint64, v message) { m.bytes(field, v) }

func (m *message) attribute(field uint64, kv attribute.KeyValue) {
	var pair message
	pair.text(1, string(kv.Key))
	pair.message(2, anyValue(kv.Value))
	m.message(field, pair)
}

// anyValue is an AnyValue: exactly one field is set, even if its value is zero.
func anyValue(v attribute.Value) message {
	var m message
	switch v.Type() {
	case attribute.BOOL:
		m.tag(2, wireVarint)
		if v.AsBool() {
			return append(m, 1)
		}
		return append(m, 0)
	case attribute.INT64:
		m.tag(3, wireVarint)
		return binary.AppendUvarint(m, uint64(v.AsInt64()))
	case attribute.FLOAT64:
		m.tag(4, wireFixed64)
		return binary.LittleEndian.AppendUint64(m, math.Float64bits(v.AsFloat64()))
	case attribute.STRING:
		m.bytes(1, []byte(strings.ToValidUTF8(v.AsString(), "\ufffd")))
		return m
	case attribute.STRINGSLICE: // of a resource
		var list message
		for _, item := range v.AsStringSlice() {
			list.message(1, anyValue(attribute.StringValue(item)))
		}
		m.message(5, list)
		return m
	}
	m.bytes(1, []byte(v.String()))
	return m
}
