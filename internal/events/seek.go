package events

import "context"

// seekStep is how close to a number seek gets: reading less is not slower.
const seekStep = 64 << 10

// seek returns the end of a line shortly before the event with a number, so that later events of a large log can be
// read without its start. It returns the start of the log if its numbers do not grow, or a line on the way is damaged.
func (src source) seek(ctx context.Context, size, seq int64) position {
	var before position
	buf := make([]byte, 4<<10)
	for end := size; seq > 1 && end-before.off > seekStep; {
		mid := before.off + (end-before.off)/2
		e, p, err := src.eventFrom(ctx, mid, buf)
		switch {
		case err != nil || e.Seq <= before.seq:
			return position{}
		case e.Seq < seq && p.off <= end:
			before = p
		default:
			end = mid
		}
	}
	return before
}

// eventFrom returns the event of the first line that begins at an offset or after it.
func (src source) eventFrom(ctx context.Context, offset int64, buf []byte) (*Event, position, error) {
	in, err := src.lines(ctx, offset-1, buf)
	if err != nil {
		return nil, position{}, err
	}
	defer in.Close() // only read, so errors do not matter
	if _, _, err = in.next(nil); err != nil {
		return nil, position{}, err
	}
	line, end, err := in.next(nil)
	if err != nil {
		return nil, position{}, err
	}
	e, err := Parse(line)
	if err != nil {
		return nil, position{}, err
	}
	return e, position{off: end, seq: e.Seq}, nil
}
