def custom_kernel(data):
    c = data[6]

return c
