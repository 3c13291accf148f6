/*
 * A stand-in for a controller, for programs that send NVMe admin commands by ioctl.
 *
 * Preloaded (LD_PRELOAD), it answers NVME_IOCTL_ADMIN_CMD and NVME_IOCTL_ADMIN64_CMD on any
 * descriptor from the folder named by WATTLOAD_ANSWERS: identify-<cns>, log-<lid>,
 * feature-<fid>-<sel> and admin-<opcode>, all in two hexadecimal digits; the files of a feature and
 * of another opcode start with the four bytes of their result. What has no file is refused with
 * Invalid Field in Command (0x4002).
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ADMIN_CMD 0xC0484E41UL
#define ADMIN64_CMD 0xC0504E47UL
#define INVALID_FIELD 0x4002

struct command {
	uint8_t opcode, flags;
	uint16_t reserved;
	uint32_t nsid, cdw2, cdw3;
	uint64_t metadata, addr;
	uint32_t metadata_len, data_len;
	uint32_t cdw10, cdw11, cdw12, cdw13, cdw14, cdw15;
	uint32_t timeout_ms;
};

static int name_answer(const struct command *command, char *path, size_t size)
{
	const char *folder = getenv("WATTLOAD_ANSWERS");
	unsigned number = command->cdw10 & 0xFF;

	if (!folder)
		return -1;
	switch (command->opcode) {
	case 0x02:
		return snprintf(path, size, "%s/log-%02x", folder, number);
	case 0x06:
		return snprintf(path, size, "%s/identify-%02x", folder, number);
	case 0x0A:
		return snprintf(path, size, "%s/feature-%02x-%02x", folder, number,
				command->cdw10 >> 8 & 7);
	default:
		return snprintf(path, size, "%s/admin-%02x", folder, command->opcode);
	}
}

static int answer(struct command *command, uint64_t *result)
{
	char path[4096];
	uint32_t word = 0;
	off_t start = 0;
	int file;

	if (name_answer(command, path, sizeof(path)) < 0)
		return INVALID_FIELD;
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return INVALID_FIELD;
	if (command->opcode != 0x02 && command->opcode != 0x06) {
		if (read(file, &word, sizeof(word)) != sizeof(word))
			word = 0;
		start = sizeof(word);
	} else if (command->opcode == 0x02) {
		start = command->cdw12 | (off_t)command->cdw13 << 32;
	}
	if (command->addr && command->data_len) {
		void *data = (void *)(uintptr_t)command->addr;

		memset(data, 0, command->data_len);
		if (pread(file, data, command->data_len, start) < 0)
			memset(data, 0, command->data_len);
	}
	close(file);
	*result = word;
	return 0;
}

int ioctl(int descriptor, unsigned long request, ...)
{
	uint64_t result = 0;
	va_list arguments;
	void *argument;
	int status;

	va_start(arguments, request);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	if (request != ADMIN_CMD && request != ADMIN64_CMD)
		return syscall(SYS_ioctl, descriptor, request, argument);
	status = answer(argument, &result);
	if (request == ADMIN_CMD)
		*(uint32_t *)((char *)argument + 68) = result;
	else
		*(uint64_t *)((char *)argument + 72) = result;
	return status;
}
