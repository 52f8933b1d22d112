package dynamo

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"e3/refstore"
)

// projection asks for the value, the version and the given fields of records.
func projection(fields []string) (expression string, names map[string]string) {
	expression = attrVersion + ", " + attrValue
	seen := make(map[string]bool, len(fields))
	for _, f := range fields {
		if f == "" || len(f) > refstore.MaxField || !utf8.ValidString(f) || seen[f] { // impossible or repeated
			continue
		}
		seen[f] = true
		if names == nil {
			names = make(map[string]string, len(fields))
		}
		placeholder := "#f" + strconv.Itoa(len(names))
		names[placeholder] = fieldPrefix + f
		expression += ", " + placeholder
	}
	return expression, names
}

// Get implements [refstore.Store].
func (s *Store) Get(ctx context.Context, key refstore.Key, fields ...string) (refstore.Record, error) {
	if err := check(ctx, key.Validate()); err != nil {
		return refstore.Record{}, err
	}
	r, err := s.get(ctx, key, fields, nil)
	if err != nil {
		err = fmt.Errorf("get %q: %w", key, err)
	}
	return r, err
}

// get reads a record from its item. It reads the item first if item is nil. It reads the item again if a blob that the
// item names is gone, since the record was written or deleted meanwhile.
func (s *Store) get(ctx context.Context, key refstore.Key, fields []string, item attributes) (refstore.Record, error) {
	k := s.table.recordKey(key)
	expression, names := projection(fields)
	var last refstore.Version
	for {
		if item == nil {
			var err error
			if item, err = s.table.getItem(ctx, k, expression, names); err != nil {
				return refstore.Record{}, err
			}
			if item == nil {
				return refstore.Record{}, refstore.ErrNotFound
			}
		}
		r, err := s.load(ctx, key, k, fields, item)
		if errors.Is(err, refstore.ErrNotFound) && r.Version == last {
			err = s.table.decode(k, item).missing(err)
		}
		if bad := (*badItemError)(nil); errors.As(err, &bad) {
			return refstore.Record{Key: key, Version: r.Version}, fmt.Errorf("it is %w: %w", refstore.ErrDamaged, err)
		}
		if !errors.Is(err, refstore.ErrNotFound) {
			return r, err
		}
		last, item = r.Version, nil
	}
}

// missing says that an item names a blob that does not exist. It does not match ErrNotFound, since the record exists.
func (d *decoder) missing(err error) error {
	d.fail("it names what is not there: %v", err)
	return d.err
}

// load makes a record of an item. If a blob is missing (ErrNotFound), or the item is bad (badItemError), it also
// returns the item's version.
func (s *Store) load(ctx context.Context, key refstore.Key, k itemKey, fields []string, item attributes) (refstore.Record, error) {
	d := s.table.decode(k, item)
	r := refstore.Record{Key: key, Version: refstore.Version(d.version())}
	value, ok := d.part(attrValue)
	if !ok {
		d.fail("it has no value")
	}
	parts := []part{value}
	for _, f := range fields {
		if p, ok := d.part(fieldPrefix + f); ok {
			parts = append(parts, p)
		}
	}
	if d.err != nil {
		return r, d.err
	}
	for i := range parts {
		if err := s.fetch(ctx, k, d, &parts[i]); err != nil {
			return r, err
		}
	}
	r.Value = parts[0].data
	for _, p := range parts[1:] {
		r.Fields = append(r.Fields, refstore.Field{Name: strings.TrimPrefix(p.name, fieldPrefix), Value: slices.Clone(p.data)})
	}
	return r, nil
}

// fetch reads a part's blob, if it has one, and checks it.
func (s *Store) fetch(ctx context.Context, k itemKey, d *decoder, p *part) error {
	if p.blob == nil {
		return nil
	}
	data, err := s.table.readBlob(ctx, blobFolder(recordBlobs, k)+p.blob.name, k, p.blob.size)
	if err != nil && !errors.Is(err, errShort) {
		return err
	}
	if err != nil || sha256.Sum256(data) != p.blob.sum {
		d.fail("blob %s of attribute %q is not what was written", blobFolder(recordBlobs, k)+p.blob.name, p.name)
		return d.err
	}
	p.data = data
	return nil
}

// Put implements [refstore.Store]. It is atomic over value and fields.
func (s *Store) Put(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	v, _, err := s.Create(ctx, r)
	return v, err
}

// Create is Put of a record that must not exist. late says that an attempt without an answer may still arrive: if the
// record has been deleted by then, the attempt creates it again, with the same version. (A late attempt of any other
// write finds another version, and has no effect.)
func (s *Store) Create(ctx context.Context, r refstore.Record) (v refstore.Version, late bool, err error) {
	err = check(ctx, r.Validate())
	if err == nil && enumerates(r.Key.Partition) && (r.Version != refstore.Absent || len(r.Value) > 0 || len(r.Fields) > 0) {
		err = fmt.Errorf("put %q: a record that stands for others has no value, no fields, and does not change: %w", r.Key, errors.ErrUnsupported)
	}
	var above, alone []itemKey
	if err == nil {
		above, alone, err = s.table.listingItems(r.Key)
	}
	if err != nil {
		return refstore.Absent, false, err
	}
	if r.Version == refstore.Absent {
		err = s.enter(ctx, above, alone...)
	}
	if err == nil {
		v, late, err = s.put(ctx, r)
	}
	if err != nil {
		return refstore.Absent, late, fmt.Errorf("put %q: %w", r.Key, err)
	}
	return v, late, nil
}

// put writes a record. The size of fields already in its item is not known: if the item gets too large, put moves more
// parts to blobs.
func (s *Store) put(ctx context.Context, r refstore.Record) (v refstore.Version, doubt bool, err error) {
	k := s.table.recordKey(r.Key)
	for _, limit := range []int{maxItem, 1 << 10} {
		version := newVersion()
		parts := recordParts(r)
		blobs := spill(k, parts, version, limit)
		names := make([]string, 0, len(blobs))
		for name, data := range blobs {
			names = append(names, name)
			if err := s.table.putBlob(ctx, name, k, data); err != nil {
				s.table.deleteBlobs(ctx, names)
				return refstore.Absent, false, err
			}
		}
		var replaced []string
		replaced, doubt, err = s.write(ctx, k, parts, version, string(r.Version))
		if err == nil {
			s.table.deleteBlobs(ctx, replaced)
			return refstore.Version(version), doubt, nil
		}
		// A refused creation may be delivered again after the deletion of the record: then the recreated record names
		// these blobs.
		if created := r.Version == refstore.Absent && errors.Is(err, refstore.ErrConflict); !doubt && !created {
			s.table.deleteBlobs(ctx, names)
		}
		if !tooLarge(err) {
			break
		}
	}
	return refstore.Absent, doubt, err
}

// tooLarge reports whether an item was refused for its size.
func tooLarge(err error) bool {
	var answer interface {
		ErrorCode() string
		ErrorMessage() string
	}
	return errors.As(err, &answer) && answer.ErrorCode() == "ValidationException" && strings.Contains(answer.ErrorMessage(), "maximum allowed size")
}

// write writes parts as the given version of a record, in place of another version. It returns the blobs that the item
// no longer names. doubt says that the outcome of an attempt is unknown: the attempt may still arrive, and with an
// error may have taken effect.
func (s *Store) write(ctx context.Context, k itemKey, parts []part, version, replaces string) (replaced []string, doubt bool, err error) {
	if replaces == string(refstore.Absent) {
		item := k.attributes()
		item[attrVersion] = &types.AttributeValueMemberS{Value: version}
		for i := range parts {
			item[parts[i].name] = parts[i].attribute()
		}
		doubt, err = s.table.putItem(ctx, item, "attribute_not_exists("+partitionKey+")", nil)
	} else {
		in := &dynamodb.UpdateItemInput{
			Key:                 k.attributes(),
			UpdateExpression:    aws.String("SET " + attrVersion + " = :v, " + attrReplaced + " = :o"),
			ConditionExpression: aws.String(attrVersion + " = :o"),
			ExpressionAttributeValues: attributes{
				":v": &types.AttributeValueMemberS{Value: version}, ":o": &types.AttributeValueMemberS{Value: replaces},
			},
			ExpressionAttributeNames: make(map[string]string, len(parts)),
		}
		for i := range parts {
			n := strconv.Itoa(i)
			in.ExpressionAttributeNames["#"+n] = parts[i].name
			in.ExpressionAttributeValues[":"+n] = parts[i].attribute()
			*in.UpdateExpression += ", #" + n + " = :" + n
		}
		var old attributes
		if old, doubt, err = s.table.updateItem(ctx, in); err == nil {
			replaced, _ = s.table.blobsOf(k, old) // the blobs of an unreadable item are unknown
		}
	}
	if conditionFailed(err) {
		doubt, err = s.refused(ctx, k, version, replaces, doubt)
	}
	return replaced, doubt, err
}

// refused finds out whether a write of version in place of another took effect, after its condition failed. The error
// is nil if it did, ErrConflict if not. The write may have taken effect even if each attempt was answered: a proxy
// that retries by itself delivers the write twice, and returns the second answer. The argument doubt says that an
// attempt had no answer. The result bool says that the write may have taken effect, or may still do so.
func (s *Store) refused(ctx context.Context, k itemKey, version, replaces string, doubt bool) (bool, error) {
	err := s.settle(ctx, k, version, replaces)
	switch {
	case err == nil:
		return doubt, nil
	case errors.Is(err, refstore.ErrConflict):
		return false, err
	case errors.Is(err, refstore.ErrInDoubt) && !doubt: // there were other writes since, so it is a conflict
		return false, refstore.ErrConflict
	}
	return true, err
}

// settle finds out whether a write of version in place of another took effect, after an attempt without an answer: nil
// if it did, ErrConflict if not.
func (s *Store) settle(ctx context.Context, k itemKey, version, replaces string) error {
	item, err := s.table.getItem(ctx, k, attrVersion+", "+attrReplaced, nil)
	if err != nil {
		return err
	}
	if item != nil {
		d := s.table.decode(k, item)
		now, before := d.version(), d.text(attrReplaced)
		switch {
		case d.err != nil:
			return d.err
		case now == version || before == version:
			return nil
		case before == replaces && before != string(refstore.Absent):
			return refstore.ErrConflict
		}
	}
	return refstore.ErrInDoubt
}

// Delete implements [refstore.Store]. If an answer was lost, and the retry finds no record, that counts as success. The
// logs of an execution are deleted with its record.
func (s *Store) Delete(ctx context.Context, key refstore.Key, v refstore.Version) error {
	if err := check(ctx, key.Validate()); err != nil {
		return err
	}
	if enumerates(key.Partition) {
		return fmt.Errorf("delete %q: a record that stands for others goes with them: %w", key, errors.ErrUnsupported)
	}
	finish := func() error { return nil }
	logs, ok := logsOf(key)
	if ok {
		var err error
		if finish, err = s.dyingLogs(ctx, logs); err != nil {
			return fmt.Errorf("delete %q: %w", key, err)
		}
	}
	deleted := s.delete(ctx, s.table.recordKey(key), v)
	if deleted != nil && !errors.Is(deleted, refstore.ErrNotFound) {
		return fmt.Errorf("delete %q: %w", key, deleted)
	}
	// This request itself may have deleted a missing record, if it was delivered twice; so the logs and blobs are
	// deleted in any case.
	err := finish()
	if _, alone, _ := s.table.listingItems(key); err == nil && len(alone) > 0 {
		_, _, err = s.table.deleteItem(ctx, alone[0], "attribute_exists("+partitionKey+")", nil)
		if conditionFailed(err) {
			err = nil
		}
	}
	if err == nil && ok {
		err = s.dyingInputs(ctx, key.Partition)
	}
	if err != nil {
		return fmt.Errorf("delete %q: the record is gone, but not everything beside it: %w", key, err)
	}
	if deleted != nil {
		return fmt.Errorf("delete %q: %w", key, deleted)
	}
	return nil
}

func (s *Store) delete(ctx context.Context, k itemKey, v refstore.Version) error {
	if v == refstore.Absent {
		v = "-" // no record has this version
	}
	old, doubt, err := s.table.deleteItem(ctx, k, attrVersion+" = :v", attributes{":v": &types.AttributeValueMemberS{Value: string(v)}})
	if err == nil {
		names, _ := s.table.blobsOf(k, old) // the blobs of an unreadable item become leftovers
		s.table.deleteBlobs(ctx, names)
		return nil
	}
	if !conditionFailed(err) {
		return err
	}
	item, err := s.table.getItem(ctx, k, attrVersion+", "+attrReplaced, nil)
	switch {
	case err != nil:
		return err
	case item == nil && doubt:
		return nil
	case item == nil:
		return refstore.ErrNotFound
	case !doubt || s.table.decode(k, item).text(attrReplaced) == string(v):
		return refstore.ErrConflict
	}
	return refstore.ErrInDoubt
}

// check returns the first reason against an operation: an ended context or an invalid argument.
func check(ctx context.Context, invalid error) error {
	if invalid != nil {
		return invalid
	}
	return ctx.Err()
}
