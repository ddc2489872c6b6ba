def main():
    def custom_kernel(data):
        return data[6]

    return custom_kernel
