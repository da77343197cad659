/* Frames between the two ends of the lab: whole, in order, and safe against nonsense. */
#include "tools/lab/protocol.c"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/socket.h>

static void make_pair(struct lab_writer *writer, struct lab_reader *reader)
{
	int pair[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
	*writer = (struct lab_writer){.fd = pair[0]};
	*reader = (struct lab_reader){.fd = pair[1]};
}

static void release(struct lab_writer *writer, struct lab_reader *reader)
{
	lab_writer_deinit(writer);
	lab_reader_deinit(reader);
	close(writer->fd);
	close(reader->fd);
}

Test(lab_protocol, frames_arrive_whole_and_in_order_through_a_slow_pipe)
{
	static uint8_t bytes[300000];
	struct lab_writer writer;
	struct lab_reader reader;
	struct lab_frame frame = {0};
	uint32_t number = 7;

	make_pair(&writer, &reader);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 31 + i / 256);
	cr_assert(lab_writer_put(&writer, LAB_REQUEST, bytes, sizeof(bytes)));
	cr_assert(lab_writer_put(&writer, LAB_SIGNAL, &number, sizeof(number)));
	cr_assert(lab_writer_put(&writer, LAB_STARTED, NULL, 0));
	for (int i = 0; i < 1000 && !lab_reader_next(&reader, &frame); i++) {
		cr_assert(lab_writer_flush(&writer));
		cr_assert(lab_reader_fill(&reader));
	}
	cr_assert_eq(frame.kind, LAB_REQUEST);
	cr_assert_eq(frame.length, sizeof(bytes));
	cr_assert_eq(memcmp(frame.payload, bytes, sizeof(bytes)), 0);
	cr_assert(lab_writer_flush(&writer));
	cr_assert_not(lab_writer_pending(&writer));
	cr_assert(lab_reader_fill(&reader));
	cr_assert(lab_reader_next(&reader, &frame));
	cr_assert_eq(frame.kind, LAB_SIGNAL);
	cr_assert_eq(memcmp(frame.payload, &number, sizeof(number)), 0);
	cr_assert(lab_reader_next(&reader, &frame));
	cr_assert_eq(frame.kind, LAB_STARTED);
	cr_assert_eq(frame.length, 0);
	cr_assert_not(lab_reader_next(&reader, &frame));
	release(&writer, &reader);
}

Test(lab_protocol, half_a_header_is_not_a_frame)
{
	struct lab_writer writer;
	struct lab_reader reader;
	struct lab_frame frame;
	uint32_t header[2] = {LAB_REQUEST, 0};

	make_pair(&writer, &reader);
	cr_assert_eq(write(writer.fd, header, 5), 5);
	cr_assert(lab_reader_fill(&reader));
	cr_assert_not(lab_reader_next(&reader, &frame));
	cr_assert_eq(write(writer.fd, (char *)header + 5, 3), 3);
	cr_assert(lab_reader_fill(&reader));
	cr_assert(lab_reader_next(&reader, &frame));
	release(&writer, &reader);
}

Test(lab_protocol, a_length_out_of_bounds_ends_the_port)
{
	struct lab_writer writer;
	struct lab_reader reader;
	struct lab_frame frame;
	uint32_t header[2] = {LAB_REQUEST, 0xfffffff0};

	make_pair(&writer, &reader);
	cr_assert_eq(write(writer.fd, header, sizeof(header)), sizeof(header));
	cr_assert(lab_reader_fill(&reader));
	cr_assert_not(lab_reader_next(&reader, &frame));
	cr_assert(reader.ended);
	cr_assert_not(lab_reader_fill(&reader));
	cr_assert_not(lab_writer_put(&writer, LAB_REQUEST, header, LAB_FRAME_MAX + 1));
	release(&writer, &reader);
}

Test(lab_protocol, the_other_end_going_away_is_seen)
{
	struct lab_writer writer;
	struct lab_reader reader;

	make_pair(&writer, &reader);
	shutdown(writer.fd, SHUT_WR);
	cr_assert_not(lab_reader_fill(&reader));
	cr_assert(reader.ended);
	release(&writer, &reader);
}
