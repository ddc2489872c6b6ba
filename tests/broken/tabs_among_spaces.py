def custom_kernel(data):
    if data:
	return data[6]
